// Curves over layers as a picture that stands alone: SVG, no scripts, no fonts of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tailor::client {

struct SvgPoint {
  double x = 0;
  double y = 0;
  std::optional<double> error;  ///< half the length of its bar; unset = not known, drawn without
};
struct SvgCurve {
  std::string name;
  std::vector<SvgPoint> points;  ///< by x; those that are not finite leave a gap
};
/// One plot with its own y axis; all panels of a picture share the x axis.
struct SvgPanel {
  std::string title;
  std::vector<SvgCurve> curves;
};

/// Panels in a row, curves with a colour and a mark by their place in the panel, one legend below
/// (of the first panel: all have the same names). The y axis begins at 0 when no value is below.
/// Cost: linear. REQUIRES: one panel or more.
std::string svg_panels(const std::string& title, const std::string& x_title,
                       const std::vector<SvgPanel>& panels);

}  // namespace tailor::client
