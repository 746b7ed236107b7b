// Reads the reference cases of tests/data/geometry: index.json and .npy arrays made with GUDHI,
// ripser, POT, SciPy, scikit-dimension and dadapy (versions in every index.json).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "geometry/npy.h"
#include "geometry/rips.h"

namespace tailor::geometry::testing {

inline std::string reference_path(const std::string& relative) {
  return std::string(TAILOR_TEST_DATA) + "/geometry/" + relative;
}

/// The cases of one group ("h1", "w2", "gw", "id"), as "group/name", sorted.
inline std::vector<std::string> reference_cases(const std::string& group) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(reference_path(group))) {
    names.push_back(group + "/" + entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class ReferenceCase {
 public:
  explicit ReferenceCase(std::string name) : name_(std::move(name)) {
    const auto text = read_file(reference_path(name_ + "/index.json"));
    EXPECT_TRUE(text.has_value()) << name_;
    index = nlohmann::json::parse(*text);
  }

  bool has(const std::string& array) const { return index.at("files").contains(array); }

  NpyArray array(const std::string& array_name) const {
    auto result = read_npy(reference_path(
        name_ + "/" + index.at("files").at(array_name).at("file").get<std::string>()));
    EXPECT_TRUE(result.has_value()) << result.error().message();
    return std::move(*result);
  }

  Cloud cloud(const std::string& array_name) const {
    const NpyArray values = array(array_name);
    return {values.to_doubles(), values.shape.at(0), values.shape.at(1)};
  }

  Diagram diagram(const std::string& array_name) const {
    const std::vector<double> values = array(array_name).to_doubles();
    Diagram bars;
    for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
      bars.push_back({values[i], values[i + 1]});
    }
    return bars;
  }

  /// A number; the string "inf" is infinity.
  static double number(const nlohmann::json& value) {
    return value.is_string() ? std::numeric_limits<double>::infinity() : value.get<double>();
  }

  nlohmann::json index;

 private:
  std::string name_;
};

inline Geometry geometry_of_reference(const std::string& name) {
  return name == "euclidean"   ? Geometry::kRaw
         : name == "spherical" ? Geometry::kSpherical
                               : Geometry::kHyperbolic;
}

/// A case name as a test name.
inline std::string test_name(std::string name) {
  name = name.substr(name.find('/') + 1);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
      '_');
  return name;
}

}  // namespace tailor::geometry::testing
