#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/bench/bench_report.hpp"

namespace ingot {
namespace {

constexpr double kLeft = 90, kTop = 50, kWidth = 640, kHeight = 400;

/// Decades from the first to the last that a set of numbers touches.
struct LogAxis {
  int low = 0;
  int high = 1;

  void include(double value) {
    low = std::min(low, static_cast<int>(std::floor(std::log10(value))));
    high = std::max(high, static_cast<int>(std::ceil(std::log10(value))));
  }
  double place(double value) const { return (std::log10(value) - low) / (high - low); }
};

std::string xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

/// Numbers above a million million a second, below one a byte and so on, without a long tail.
std::string tick_text(int decade) {
  return decade >= 0 ? fmt::format("{:.0f}", std::pow(10.0, decade))
                     : fmt::format("{:.{}f}", std::pow(10.0, decade), -decade);
}

class Roofline {
 public:
  Roofline(const BenchSubject& subject, const std::vector<RooflinePoint>& points)
      : rates_(subject.rates), points_(points) {
    y_.low = 0;
    for (const double rate : {rates_.f16_per_us, rates_.fp8_per_us}) {
      y_.include(rate / 1e6);
      x_.include(2 * rate / rates_.bytes_per_us());  // the ridge lies inside
    }
    for (const RooflinePoint& point : points_) {
      x_.include(point.operations_per_byte);
      y_.include(point.operations_per_us / 1e6);
    }
    title_ = fmt::format("{}: {}, {} layers, TP {}", subject.device, subject.model, subject.layers,
                         subject.tp_size);
  }

  std::string svg() {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
        "{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        kLeft + kWidth + 40, kTop + kHeight + 60);
    text(kLeft, 28, "start", title_, 15);
    axes();
    ceiling(rates_.f16_per_us, "f16", "#1b6ca8");
    if (rates_.fp8_per_us > rates_.f16_per_us) ceiling(rates_.fp8_per_us, "FP8", "#a8511b");
    for (const RooflinePoint& point : points_)
      mark(point);
    return out_ + "</svg>\n";
  }

 private:
  double x(double operations_per_byte) const {
    return kLeft + kWidth * x_.place(operations_per_byte);
  }
  double y(double tera) const { return kTop + kHeight * (1 - y_.place(tera)); }

  void text(double at_x, double at_y, std::string_view anchor, std::string_view words,
            int size = 12) {
    out_ += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\">{}</text>\n", at_x,
        at_y, anchor, size, xml(words));
  }
  void line(double x1, double y1, double x2, double y2, std::string_view style) {
    out_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1,
                        y1, x2, y2, style);
  }

  void axes() {
    constexpr std::string_view kGrid = "stroke=\"#dddddd\"";
    for (int decade = x_.low; decade <= x_.high; ++decade) {
      const double at = x(std::pow(10.0, decade));
      line(at, kTop, at, kTop + kHeight, kGrid);
      text(at, kTop + kHeight + 18, "middle", tick_text(decade));
    }
    for (int decade = y_.low; decade <= y_.high; ++decade) {
      const double at = y(std::pow(10.0, decade));
      line(kLeft, at, kLeft + kWidth, at, kGrid);
      text(kLeft - 8, at + 4, "end", tick_text(decade));
    }
    text(kLeft + kWidth / 2, kTop + kHeight + 42, "middle", "operations for each byte read");
    text(kLeft - 70, kTop - 8, "start", "TFLOP/s");
  }

  /// The slope of the memory up to the ridge, flat from there on.
  void ceiling(double operations_per_us, std::string_view name, std::string_view colour) {
    const double ridge = operations_per_us / rates_.bytes_per_us();
    const double lowest_y = std::pow(10.0, y_.low), lowest_x = std::pow(10.0, x_.low);
    const double start = std::max(lowest_x, lowest_y * 1e6 / rates_.bytes_per_us());
    const std::string style = fmt::format("stroke=\"{}\" stroke-width=\"2\"", colour);
    line(x(start), y(start * rates_.bytes_per_us() / 1e6), x(ridge), y(operations_per_us / 1e6),
         style);
    line(x(ridge), y(operations_per_us / 1e6), kLeft + kWidth, y(operations_per_us / 1e6), style);
    text(kLeft + kWidth - 4, y(operations_per_us / 1e6) - 6, "end",
         fmt::format("{} {:.0f} TFLOP/s, {:.2f} TB/s", name, operations_per_us / 1e6,
                     rates_.bytes_per_us() / 1e6));
  }

  void mark(const RooflinePoint& point) {
    const double at_x = x(point.operations_per_byte), at_y = y(point.operations_per_us / 1e6);
    out_ +=
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#333333\"/>\n", at_x, at_y);
    text(at_x + 7, at_y + 4, "start", point.label);
  }

  const CardRates& rates_;
  const std::vector<RooflinePoint>& points_;
  LogAxis x_, y_;
  std::string title_, out_;
};

}  // namespace

std::string roofline_svg(const BenchSubject& subject, const std::vector<RooflinePoint>& points) {
  return Roofline(subject, points).svg();
}

}  // namespace ingot
