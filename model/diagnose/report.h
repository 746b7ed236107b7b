// The diagnosis as one HTML file that opens without network: data, page and Plotly's JavaScript
// are all in it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tailor::diagnose {

/// `diagnosis`: what analyse() gives with "model", "data" and "settings". Where the program was
/// built without Plotly (deploy/setup.sh was not run) the page says so and shows tables alone.
std::string report_html(const nlohmann::ordered_json& diagnosis);

/// The page that report_html fills in, and Plotly's JavaScript ("" without it).
std::string_view report_page();
std::string_view plotly_javascript();

}  // namespace tailor::diagnose
