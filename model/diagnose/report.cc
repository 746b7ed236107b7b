#include "model/diagnose/report.h"

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tailor::diagnose {
namespace {

// Where a script stands in a page, "</script" and "<!--" would end or hide it.
std::string for_script(std::string text) {
  for (std::size_t at = text.find('<'); at != text.npos; at = text.find('<', at + 1)) {
    text.replace(at, 1, "\\u003c");
  }
  return text;
}

}  // namespace

std::string report_html(const nlohmann::ordered_json& diagnosis) {
  const std::string_view page = report_page();
  constexpr std::string_view kPlotly = "/*PLOTLY*/";
  constexpr std::string_view kData = "/*DIAGNOSIS*/";
  const std::size_t plotly = page.find(kPlotly);
  const std::size_t data = page.find(kData);
  TAILOR_CHECK(plotly != page.npos && data != page.npos && plotly < data);
  // Bytes that are no UTF-8 (a path) must not end the run.
  const std::string data_text =
      for_script(diagnosis.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  std::string out;
  out.reserve(page.size() + plotly_javascript().size() + data_text.size());
  out.append(page.substr(0, plotly));
  out.append(plotly_javascript());
  out.append(page.substr(plotly + kPlotly.size(), data - plotly - kPlotly.size()));
  out.append(data_text);
  out.append(page.substr(data + kData.size()));
  return out;
}

}  // namespace tailor::diagnose
