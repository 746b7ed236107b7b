#include "client/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/text.h"

namespace tailor::client {
namespace {

constexpr double kPanelWidth = 250, kPanelHeight = 180, kLeft = 62, kTop = 52, kGap = 78;
// Told apart also without colours: by their marks.
constexpr std::array kSvgColours = {"#c4682b", "#2b6cc4", "#2f9461", "#8a5bb5"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : escape_controls(text)) {
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  }
  return out;
}

std::string words(double x, double y, const std::string& text, const char* anchor) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}

std::string stroke(double x1, double y1, double x2, double y2, const char* colour) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2,
      y2, colour);
}

std::string mark(double x, double y, std::size_t curve) {
  const char* colour = kSvgColours[curve % kSvgColours.size()];
  switch (curve % 3) {
    case 0:
      return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x, y,
                         colour);
    case 1:
      return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"6\" height=\"6\" fill=\"{}\"/>\n",
                         x - 3, y - 3, colour);
    default:
      return fmt::format("<path d=\"M{:.1f} {:.1f}l4 7h-8z\" fill=\"{}\"/>\n", x, y - 4, colour);
  }
}

struct Range {
  double low = 0, high = 1;
  double share(double value) const { return (value - low) / (high - low); }
};

bool drawable(const SvgPoint& point) { return std::isfinite(point.x) && std::isfinite(point.y); }

Range range_of(const SvgPanel& panel, bool of_x) {
  std::optional<double> low, high;
  const auto take = [&](double value) {
    low = std::min(low.value_or(value), value);
    high = std::max(high.value_or(value), value);
  };
  for (const SvgCurve& curve : panel.curves) {
    for (const SvgPoint& point : curve.points) {
      if (!drawable(point)) continue;
      const double error = of_x ? 0 : point.error.value_or(0);
      take((of_x ? point.x : point.y) - error);
      take((of_x ? point.x : point.y) + error);
    }
  }
  if (!low) return {};
  if (!of_x && *low > 0) low = 0;
  if (*high <= *low) return {*low - 0.5, *low + 0.5};
  return {*low, of_x ? *high : *high + 0.05 * (*high - *low)};
}

/// A step of 1, 2 or 5 times a power of ten that gives about four marks.
double step_of(const Range& range) {
  const double raw = (range.high - range.low) / 4;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double share = raw / power;
  return power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
}

std::string panel_svg(const SvgPanel& panel, const Range& x_range, const std::string& x_title,
                      double left) {
  const Range y_range = range_of(panel, false);
  const auto at_x = [&](double x) { return left + kPanelWidth * (0.03 + 0.94 * x_range.share(x)); };
  const auto at_y = [&](double y) { return kTop + kPanelHeight * (1 - y_range.share(y)); };
  std::string out = words(left + kPanelWidth / 2, kTop - 10, panel.title, "middle");
  const double y_step = step_of(y_range);
  for (double y = std::ceil(y_range.low / y_step) * y_step; y <= y_range.high; y += y_step) {
    out += stroke(left, at_y(y), left + kPanelWidth, at_y(y), "#d9dce1");
    out += words(left - 6, at_y(y) + 4, fmt::format("{:.4g}", std::abs(y) < 1e-12 ? 0 : y), "end");
  }
  const double x_step = std::max(1.0, step_of(x_range));
  for (double x = std::ceil(x_range.low / x_step) * x_step; x <= x_range.high; x += x_step) {
    out += words(at_x(x), kTop + kPanelHeight + 16, fmt::format("{:g}", x), "middle");
  }
  out += words(left + kPanelWidth / 2, kTop + kPanelHeight + 34, x_title, "middle");
  out += stroke(left, kTop + kPanelHeight, left + kPanelWidth, kTop + kPanelHeight, "#5c636e");
  for (std::size_t c = 0; c < panel.curves.size(); ++c) {
    const char* colour = kSvgColours[c % kSvgColours.size()];
    const SvgPoint* before = nullptr;
    for (const SvgPoint& point : panel.curves[c].points) {
      if (!drawable(point)) {
        before = nullptr;
        continue;
      }
      const double x = at_x(point.x), y = at_y(point.y);
      if (before != nullptr) out += stroke(at_x(before->x), at_y(before->y), x, y, colour);
      if (point.error) {
        out += stroke(x, at_y(point.y - *point.error), x, at_y(point.y + *point.error), colour);
      }
      out += mark(x, y, c);
      before = &point;
    }
  }
  return out;
}

}  // namespace

std::string svg_panels(const std::string& title, const std::string& x_title,
                       const std::vector<SvgPanel>& panels) {
  TAILOR_CHECK(!panels.empty(), "a picture without a panel");
  SvgPanel all;
  for (const SvgPanel& panel : panels) {
    all.curves.insert(all.curves.end(), panel.curves.begin(), panel.curves.end());
  }
  const Range x_range = range_of(all, true);
  const double width =
      kLeft + static_cast<double>(panels.size()) * (kPanelWidth + kGap) - kGap + 20;
  const double height = kTop + kPanelHeight + 72;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"system-ui, sans-serif\" font-size=\"12\" "
      "fill=\"#1c1e21\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      width, height);
  out += words(width / 2, 20, title, "middle");
  for (std::size_t p = 0; p < panels.size(); ++p) {
    out += panel_svg(panels[p], x_range, x_title,
                     kLeft + static_cast<double>(p) * (kPanelWidth + kGap));
  }
  double x = kLeft;
  for (std::size_t c = 0; c < panels[0].curves.size(); ++c) {
    out += mark(x, height - 14, c);
    out += words(x + 10, height - 10, panels[0].curves[c].name, "start");
    x += 30 + 7.5 * static_cast<double>(panels[0].curves[c].name.size());
  }
  return out + "</svg>\n";
}

}  // namespace tailor::client
