// Accelerators of the tests: one that does everything in the plainest way, as accelerator.h
// promises it, and counts its calls; and one that can do nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "geometry/accelerator.h"

namespace tailor::geometry::testing {

class PlainAccelerator final : public Accelerator {
 public:
  std::string name() const override { return "plain"; }
  Status status() const override { return Status::ok(); }

  bool squared_differences(const PaddedRows& rows, double* out) const override {
    ++calls_;
    for (std::size_t i = 0; i < rows.count; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        double s[kLanes] = {};
        for (std::size_t k = 0; k < rows.stride; ++k) {
          const double v = rows.row(i)[k] - rows.row(j)[k];
          s[k % kLanes] = std::fma(v, v, s[k % kLanes]);
        }
        out[i * rows.count + j] = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
      }
    }
    return true;
  }

  bool multiply(const PaddedRows& a, const PaddedRows& b, PaddedRows& out) const override {
    ++calls_;
    out = PaddedRows(a.count, a.count);
    for (std::size_t i = 0; i < a.count; ++i) {
      for (std::size_t j = 0; j < a.count; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < a.count; ++k) sum = std::fma(a.row(i)[k], b.row(k)[j], sum);
        out.row(i)[j] = sum;
      }
    }
    return true;
  }

  bool lunes(std::span<const Edge> edges, std::size_t points, EdgeLunes& out) const override {
    ++calls_;
    out.starts.assign(1, 0);
    out.representatives.clear();
    std::vector<std::vector<bool>> joined(points, std::vector<bool>(points));
    for (const Edge& edge : edges) {
      std::vector<std::size_t> lune;
      for (std::size_t k = 0; k < points; ++k) {
        if (joined[edge.i][k] && joined[edge.j][k]) lune.push_back(k);
      }
      while (!lune.empty()) {
        std::vector<std::size_t> component = {lune.front()};
        lune.erase(lune.begin());
        out.representatives.push_back(static_cast<std::uint16_t>(component[0]));
        for (std::size_t c = 0; c < component.size(); ++c) {
          const auto is_near = [&](std::size_t k) { return joined[component[c]][k]; };
          for (const std::size_t k : lune) {
            if (is_near(k)) component.push_back(k);
          }
          std::erase_if(lune, is_near);
        }
      }
      out.starts.push_back(static_cast<std::uint32_t>(out.representatives.size()));
      joined[edge.i][edge.j] = joined[edge.j][edge.i] = true;
    }
    return true;
  }

  int calls() const { return calls_; }

 private:
  mutable std::atomic<int> calls_ = 0;
};

class BrokenAccelerator final : public Accelerator {
 public:
  std::string name() const override { return "broken"; }
  Status status() const override { return Status(Code::kUnavailable, "broken"); }
  bool squared_differences(const PaddedRows&, double*) const override { return false; }
  bool multiply(const PaddedRows&, const PaddedRows&, PaddedRows&) const override { return false; }
  bool lunes(std::span<const Edge>, std::size_t, EdgeLunes&) const override { return false; }
};

}  // namespace tailor::geometry::testing
