// tailor geometry, as a program: values against the reference cases of tests/data/geometry (made
// with GUDHI, ripser, POT, SciPy, scikit-dimension) and closed forms; refusals by exit code and
// message.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

#include "base/file.h"
#include "geometry/npy.h"
#include "tests/support/temporary_folder.h"

namespace tailor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Ran {
  int exit_code = -1;
  std::string out, err;
};

class GeometryCommand : public ::testing::Test {
 protected:
  Ran run(const std::string& arguments) const {
    const std::string out = path("stdout"), err = path("stderr");
    const int status = std::system(
        ("'" TAILOR_BIN_DIR "/tailor' geometry " + arguments + " >" + out + " 2>" + err).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out).value_or(""),
            read_file(err).value_or("")};
  }

  /// With --json, which must work.
  Json json(const std::string& arguments) const {
    const Ran ran = run(arguments + " --json");
    EXPECT_EQ(ran.exit_code, 0) << arguments << "\n" << ran.err;
    return Json::parse(ran.out, nullptr, false);
  }

  /// Must be refused with exit code 2; returns what was said.
  std::string refusal(const std::string& arguments) const {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_code, 2) << arguments << "\n" << ran.out << ran.err;
    EXPECT_EQ(ran.out, "") << arguments;
    return ran.err;
  }

  std::string path(const std::string& name) const { return (dir_ / name).string(); }

  std::string array(const std::string& name, const std::vector<double>& values,
                    std::vector<std::size_t> shape) const {
    const Status status = geometry::write_npy(path(name), values, shape);
    EXPECT_TRUE(status.is_ok()) << status.message();
    return path(name);
  }

  std::string integers(const std::string& name, const std::vector<std::int64_t>& values) const {
    geometry::NpyArray array;
    array.type = geometry::NpyType::kI8;
    array.shape = {values.size()};
    array.bytes.assign(reinterpret_cast<const char*>(values.data()), 8 * values.size());
    EXPECT_TRUE(geometry::write_npy(path(name), array).is_ok());
    return path(name);
  }

  std::string text(const std::string& name, const std::string& content) const {
    EXPECT_TRUE(write_file_atomic(path(name), content, false).is_ok());
    return path(name);
  }

  static std::string data(const std::string& name) {
    return std::string(TAILOR_TEST_DATA) + "/geometry/" + name;
  }
  static Json index(const std::string& name) {
    return Json::parse(read_file(data(name + "/index.json")).value_or("null"));
  }
  static std::vector<std::string> cases(const std::string& group) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(data(group))) {
      names.push_back(group + "/" + entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  const test::TemporaryFolder temporary_;
  const std::filesystem::path dir_ = temporary_.path();
};

std::string command_geometry(const std::string& reference_name) {
  if (reference_name == "euclidean") return "raw";
  return reference_name + " --rho 0.9";  // the radius of the reference cases
}

using Pairs = std::vector<std::pair<double, double>>;

Pairs above(const Pairs& pairs, double floor) {
  Pairs kept;
  for (const auto& [birth, death] : pairs) {
    if (death - birth > floor) kept.push_back({birth, death});
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

void expect_pairs(const Json& printed, const std::string& reference, const Json& expected) {
  const auto array = geometry::read_npy(reference);
  ASSERT_TRUE(array.has_value()) << reference;
  const std::vector<double> values = array->to_doubles();
  Pairs right;
  for (std::size_t i = 0; i + 1 < values.size(); i += 2)
    right.push_back({values[i], values[i + 1]});
  const double floor = expected.at("persistence_floor");
  const double tolerance = std::max(expected.at("tolerance_float64").get<double>(), 1e-15);
  const Pairs mine = above(printed.at("pairs").get<Pairs>(), floor);
  right = above(right, floor);
  ASSERT_EQ(mine.size(), right.size()) << reference;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_NEAR(mine[i].first, right[i].first, tolerance) << reference << " " << i;
    EXPECT_NEAR(mine[i].second, right[i].second, tolerance) << reference << " " << i;
  }
}

TEST_F(GeometryCommand, PersistenceOfCloudsIsThatOfTheReferenceInEveryGeometry) {
  for (const char* name : {"h1/square4", "h1/circle40", "h1/two_circles60", "h1/gaussian64_d64",
                           "h1/duplicates96_d6", "h1/all_same20", "h1/n1", "h1/n2", "h1/n3"}) {
    const Json expected = index(name).at("expected");
    for (const char* geometry : {"euclidean", "spherical", "hyperbolic"}) {
      const Json printed = json("persistence " + data(std::string(name) + "/points.npy") +
                                " --geometry " + command_geometry(geometry));
      expect_pairs(printed, data(std::string(name) + "/h1_" + geometry + ".npy"),
                   expected.at(geometry));
    }
  }
}

TEST_F(GeometryCommand, PersistenceOfADistanceMatrixKeepsItsEntriesBitForBit) {
  const std::string name = "h1/gaussian64_d64";
  const auto triangle = geometry::read_npy(data(name + "/dist_spherical.npy"));
  ASSERT_TRUE(triangle.has_value());
  const std::vector<double> entries = triangle->to_doubles();
  std::vector<double> square(64 * 64);
  std::size_t at = 0;
  for (std::size_t i = 1; i < 64; ++i) {
    for (std::size_t j = 0; j < i; ++j) square[i * 64 + j] = square[j * 64 + i] = entries[at++];
  }
  ASSERT_EQ(at, entries.size());
  const std::string matrix = array("d.npy", square, {64, 64});
  const Json printed = json("persistence " + matrix + " --distances --output " + path("out.npy"));
  const Pairs pairs = printed.at("pairs").get<Pairs>();
  const auto reference = geometry::read_npy(data(name + "/h1_spherical.npy"))->to_doubles();
  Pairs right;
  for (std::size_t i = 0; i < reference.size(); i += 2) {
    right.push_back({reference[i], reference[i + 1]});
  }
  EXPECT_EQ(pairs, right);
  EXPECT_EQ(printed.at("geometry"), "distances");
  EXPECT_EQ(printed.at("truncated"), false);
  // The diagram that was written is what wasserstein reads.
  EXPECT_EQ(geometry::read_npy(path("out.npy"))->to_doubles(), reference);
  EXPECT_EQ(json("wasserstein " + path("out.npy") + " " + data(name + "/h1_spherical.npy"))
                .at("distance"),
            0.0);
}

TEST_F(GeometryCommand, TheDefaultRadiusIsTanhOne) {
  // f(theta) = 2 arsinh(sinh 2 sin(theta / 2)) of the spherical diagram.
  const std::string points = data("h1/circle40/points.npy");
  const Pairs spherical =
      json("persistence " + points + " --geometry spherical").at("pairs").get<Pairs>();
  const Json hyperbolic = json("persistence " + points + " --geometry hyperbolic");
  EXPECT_NEAR(hyperbolic.at("rho"), std::tanh(1.0), 1e-15);
  const Pairs mapped = hyperbolic.at("pairs").get<Pairs>();
  ASSERT_EQ(mapped.size(), spherical.size());
  ASSERT_FALSE(mapped.empty());
  const auto f = [](double theta) { return 2 * std::asinh(std::sinh(2.0) * std::sin(theta / 2)); };
  for (std::size_t i = 0; i < mapped.size(); ++i) {
    EXPECT_NEAR(mapped[i].first, f(spherical[i].first), 1e-12);
    EXPECT_NEAR(mapped[i].second, f(spherical[i].second), 1e-12);
  }
}

TEST_F(GeometryCommand, ALowThresholdTruncatesInTheUnitsOfTheGeometry) {
  // A unit square: one loop, born at 1, dead at sqrt 2.
  const std::string square = array("square.npy", {0, 0, 1, 0, 1, 1, 0, 1}, {4, 2});
  EXPECT_EQ(json("persistence " + square).at("pairs"), Json::parse("[[1.0, 1.4142135623730951]]"));
  const Json cut = json("persistence " + square + " --threshold 1.25");
  EXPECT_EQ(cut.at("pairs"), Json::parse("[[1.0, 1.25]]"));
  EXPECT_EQ(cut.at("truncated"), true);
  EXPECT_EQ(json("persistence " + square + " --floor 0.5").at("pairs"), Json::array());
  // Four directions at right angles: angles pi/2 and pi; f(pi/2) = 3.3419024482.
  const std::string cross = array("cross.npy", {1, 0, 0, 2, -3, 0, 0, -1}, {4, 2});
  const Pairs pairs =
      json("persistence " + cross + " --geometry hyperbolic --threshold 3.75").at("pairs");
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_NEAR(pairs[0].first, 3.3419024482, 1e-10);
  EXPECT_EQ(pairs[0].second, 3.75);
}

TEST_F(GeometryCommand, ZeroVectorsAreDroppedWhereAnglesCountAndNotInTheRawGeometry) {
  const std::string points = array("zero.npy", {0, 0, 1, 0, 0, 1, -1, 0, 0, -1}, {5, 2});
  const Json raw = json("persistence " + points);
  EXPECT_EQ(raw.at("points"), 5);
  EXPECT_EQ(raw.at("dropped"), 0);
  EXPECT_TRUE(raw.at("pairs").empty());  // the origin fills the square
  const Json spherical = json("persistence " + points + " --geometry spherical");
  EXPECT_EQ(spherical.at("points"), 4);
  EXPECT_EQ(spherical.at("dropped"), 1);
  const Pairs pairs = spherical.at("pairs").get<Pairs>();
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_NEAR(pairs[0].first, std::numbers::pi / 2, 1e-15);
  EXPECT_NEAR(pairs[0].second, std::numbers::pi, 1e-15);
}

TEST_F(GeometryCommand, WassersteinDistancesAreThoseOfTheReference) {
  for (const std::string& name : cases("w2")) {
    const Json reference = index(name);
    const double relative = reference.at("tolerance_rel"), absolute = reference.at("tolerance_abs");
    const std::string files = data(name + "/a.npy") + " " + data(name + "/b.npy");
    for (const auto& [ground, key] : {std::pair{"2", "l2"}, std::pair{"inf", "linf"}}) {
      const Json printed = json("wasserstein " + files + " --ground " + ground);
      const Json& right = reference.at("expected").at(key);
      if (right == "inf") {
        EXPECT_EQ(printed.at("distance"), "Infinity") << name;
        continue;
      }
      EXPECT_NEAR(printed.at("distance"), right.get<double>(),
                  relative * right.get<double>() + absolute)
          << name << " " << ground;
      EXPECT_EQ(printed.at("ground"), ground);
    }
  }
}

TEST_F(GeometryCommand, WassersteinTakesOrderAndGroundNorm) {
  const std::string a = array("a.npy", {1, 3, 2, 2.5}, {2, 2});
  const std::string b = array("b.npy", {1.2, 2.8}, {1, 2});
  const std::string empty = array("empty.npy", {}, {0, 2});
  struct Case {
    const char* options;
    double pair, alone;
  };
  for (const Case& c :
       {Case{"", .4527692569, 1.4577379737}, Case{"--ground inf", .3201562119, 1.0307764064},
        Case{"--order 1", .6363961031, 1.7677669530}, Case{"--order 1 --ground inf", .45, 1.25}}) {
    const std::string options = std::string(" ") + c.options;
    EXPECT_NEAR(json("wasserstein " + a + " " + b + options).at("distance"), c.pair, 1e-10);
    EXPECT_NEAR(json("wasserstein " + a + " " + empty + options).at("distance"), c.alone, 1e-10);
  }
  const std::string endless = array("endless.npy", {1, kInfinity}, {1, 2});
  EXPECT_EQ(json("wasserstein " + a + " " + endless).at("distance"), "Infinity");
}

TEST_F(GeometryCommand, GromovWassersteinLiesBetweenTheBoundsAndTheBestKnown) {
  for (const std::string& name : cases("gw")) {
    const Json reference = index(name);
    if (reference.at("n").get<int>() > 64) continue;
    const Json& expected = reference.at("expected");
    const double tolerance = std::max(reference.at("tolerance_abs").get<double>(), 1e-12);
    const Json printed =
        json("gw " + data(name + "/x.npy") + " " + data(name + "/y.npy") + " --geometry " +
             command_geometry(reference.at("geometry").get<std::string>()));
    const double energy = printed.at("energy");
    EXPECT_NEAR(printed.at("value"), std::sqrt(energy), 1e-15 * (1 + energy)) << name;
    EXPECT_LE(energy, expected.at("best_value").get<double>() * (1 + 1e-6) + tolerance) << name;
    double bound = 0;
    for (const auto& [key, value] : expected.at("lower_bounds").items()) {
      bound = std::max(bound, value.get<double>());
    }
    EXPECT_GE(energy, bound - tolerance) << name;
    EXPECT_NEAR(printed.at("lower_bound"), bound, tolerance + 1e-9 * bound) << name;
    const double identity = expected.at("value_at_identity");
    EXPECT_NEAR(printed.at("identity"), identity, tolerance + 1e-9 * identity) << name;
  }
}

TEST_F(GeometryCommand, GromovWassersteinOfMatricesMatchesTheTriangleByHand) {
  // 3-4-5 against 2-4-6: the identity and the second bound both give 2 (1 + 0 + 1) / 9.
  const std::string a = array("a.npy", {0, 3, 4, 3, 0, 5, 4, 5, 0}, {3, 3});
  const std::string b = array("b.npy", {0, 2, 4, 2, 0, 6, 4, 6, 0}, {3, 3});
  const Json printed = json("gw " + a + " " + b + " --distances");
  EXPECT_NEAR(printed.at("value"), 2.0 / 3, 1e-14);
  EXPECT_NEAR(printed.at("energy"), 4.0 / 9, 1e-14);
  EXPECT_NEAR(printed.at("identity"), 4.0 / 9, 1e-14);
  EXPECT_NEAR(printed.at("lower_bound"), 4.0 / 9, 1e-14);
  EXPECT_EQ(printed.at("certified"), true);
  // The same line in another order is the same space.
  const std::string x = array("x.npy", {0, 1, 3}, {3, 1});
  const std::string y = array("y.npy", {3, 0, 1}, {3, 1});
  const Json line = json("gw " + x + " " + y);
  EXPECT_NEAR(line.at("value"), 0, 1e-12);
  EXPECT_NEAR(line.at("identity"), 4.0 / 3, 1e-12);
}

TEST_F(GeometryCommand, GromovWassersteinIsTheSameForASeedWhateverTheThreads) {
  const std::string files = data("gw/perturbed64_euclidean/x.npy") + " " +
                            data("gw/perturbed64_spherical/y.npy") + " --starts 5 --seed 3";
  const Json one = json("gw " + files + " --threads 1");
  EXPECT_EQ(one, json("gw " + files + " --threads 3"));
  EXPECT_EQ(one.at("starts").size(), 32u);  // with the 24 restarts
  EXPECT_EQ(json("gw " + files + " --restarts 0").at("starts").size(), 8u);
  EXPECT_EQ(one.at("seed"), 3);
}

TEST_F(GeometryCommand, GromovWassersteinSaysWhenAValueIsNotCertified) {
  const std::string files =
      data("gw/perturbed64_euclidean/x.npy") + " " + data("gw/perturbed64_spherical/y.npy");
  const Ran ran = run("gw " + files + " --json");
  EXPECT_EQ(ran.exit_code, 0);
  const Json printed = Json::parse(ran.out);
  EXPECT_EQ(printed.at("certified"), false);
  EXPECT_THAT(printed.at("note").get<std::string>(), HasSubstr("not certified"));
  EXPECT_THAT(ran.err, HasSubstr("not certified"));
  // A cycle of six in another order: 0, certified, and nothing to say.
  const auto cycle = [&](const std::string& name, const std::vector<std::size_t>& order) {
    std::vector<double> square(36, 0.0);
    for (std::size_t i = 0; i < 6; ++i) {
      const std::size_t from = order[i], to = order[(i + 1) % 6];
      square[6 * from + to] = square[6 * to + from] = 1;
    }
    return array(name, square, {6, 6});
  };
  const std::string a = cycle("a.npy", {0, 1, 2, 3, 4, 5}), b = cycle("b.npy", {3, 0, 5, 1, 4, 2});
  const Ran copy = run("gw " + a + " " + b + " --distances --json");
  EXPECT_EQ(copy.err, "");
  const Json same = Json::parse(copy.out);
  EXPECT_EQ(same.at("value"), 0.0);
  EXPECT_EQ(same.at("certified"), true);
  EXPECT_TRUE(same.at("note").is_null());
}

TEST_F(GeometryCommand, ATokenWithAZeroVectorOnOneSideGoesFromBoth) {
  const std::string x = array("x.npy", {1, 0, 0, 0, 0, 1, 1, 1}, {4, 2});
  const std::string y = array("y.npy", {1, 0, 5, 5, 0, 1, 1, 1}, {4, 2});
  const Json printed = json("gw " + x + " " + y + " --geometry spherical");
  EXPECT_EQ(printed.at("dropped"), 1);
  EXPECT_EQ(printed.at("points"), Json::parse("[3, 3]"));
  EXPECT_NEAR(printed.at("value"), 0, 1e-12);
}

TEST_F(GeometryCommand, DimensionsAreThoseOfTheReference) {
  for (const std::string& name : cases("id")) {
    const Json expected = index(name).at("expected").at("euclidean");
    const Json printed = json("dimension " + data(name + "/points.npy"));
    for (const auto& [mine, theirs] :
         {std::pair{"two_nn", "twonn_mle_formula"}, std::pair{"two_nn_fit", "twonn_fit_i_over_n"},
          std::pair{"levina_bickel", "mackay_ghahramani_k20"},
          std::pair{"levina_bickel_mean", "levina_bickel_mean_k20"}}) {
      const double right = expected.at(theirs);
      EXPECT_NEAR(printed.at(mine), right, 1e-6 * right) << name << " " << mine;
    }
    EXPECT_EQ(printed.at("dropped"), 0) << name;
    EXPECT_EQ(printed.at("scales").size(), 3u) << name;
    const double ten =
        json("dimension " + data(name + "/points.npy") + " --neighbours 10").at("levina_bickel");
    const double right = expected.at("mackay_ghahramani_k10");
    EXPECT_NEAR(ten, right, 1e-6 * right) << name;
  }
}

TEST_F(GeometryCommand, DimensionCountsDuplicatesAndRefusesTooFewPoints) {
  const std::string line = array("line.npy", {0, 1, 3, 6, 10, 3, 3}, {7, 1});
  const Json printed = json("dimension " + line + " --neighbours 3 --min-points 5");
  EXPECT_NEAR(printed.at("two_nn"), 1.3138349550, 1e-10);
  EXPECT_NEAR(printed.at("two_nn_biased"), 1.6422936938, 1e-10);
  EXPECT_NEAR(printed.at("levina_bickel"), 1.3865175161, 1e-10);
  EXPECT_EQ(printed.at("dropped"), 2);
  EXPECT_EQ(printed.at("points"), 5);
  EXPECT_THAT(refusal("dimension " + line), AllOf(HasSubstr("line.npy"), HasSubstr("50")));
}

TEST_F(GeometryCommand, WorkOfAKnownDisplacementIsTheClosedForm) {
  // Two tokens; FFN moves (1,0) to (1,1) and (0,1) to (0,1): shift raw (1 + 0)/2, angle pi/8.
  const std::string before = array("before.npy", {1, 0, 0, 1}, {2, 2});
  const std::string after = array("after.npy", {1, 1, 0, 1}, {2, 2});
  const Json printed = json("work " + before + " " + after);
  EXPECT_NEAR(printed.at("raw").at("shift").at("value"), .5, 1e-15);
  EXPECT_NEAR(printed.at("spherical").at("shift").at("value"), std::numbers::pi / 8, 1e-15);
  const double f = 2 * std::asinh(std::sinh(2.0) * std::sin(std::numbers::pi / 8));
  EXPECT_NEAR(printed.at("hyperbolic").at("shift").at("value"), f / 2, 1e-14);
  // Two points at distance a and b: E = (a - b)^2 / 2.
  EXPECT_NEAR(printed.at("raw").at("gromov").at("value"), (std::sqrt(2.0) - 1) / std::sqrt(2.0),
              1e-14);
  EXPECT_EQ(printed.at("raw").at("topology").at("value"), 0.0);
  // All there is makes one subsample, which has no error; a mean over two tokens has: |1 - 0| / 2.
  EXPECT_EQ(printed.at("subsamples"), 1);
  EXPECT_EQ(printed.at("subsamples_asked"), 8);
  EXPECT_TRUE(printed.at("raw").at("gromov").at("standard_error").is_null());
  EXPECT_THAT(printed.at("raw").at("gromov").at("no_error"), HasSubstr("one subsample"));
  EXPECT_NEAR(printed.at("raw").at("shift").at("standard_error"), .5, 1e-15);
  EXPECT_EQ(printed.at("sequences_given"), false);
  EXPECT_EQ(printed.at("entries").size(), 9u);
}

TEST_F(GeometryCommand, WorkOfARealLayerIsThatOfTheReferenceAndCarriesErrors) {
  const std::string name = "real/residual512_d256";
  const Json reference = index(name);
  const std::string files = data(name + "/x.npy") + " " + data(name + "/y.npy");
  const Json whole = json("work " + files + " --tokens 512 --subsamples 1 --rho 0.9");
  for (const auto& [mine, theirs] :
       {std::pair{"raw", "euclidean"}, std::pair{"spherical", "spherical"},
        std::pair{"hyperbolic", "hyperbolic"}}) {
    const double right = reference.at("w2").at(theirs).at("expected").at("l2");
    EXPECT_NEAR(whole.at(mine).at("topology").at("value"), right, 1e-9 * right) << mine;
  }
  const Json sampled = json("work " + files + " --tokens 64 --subsamples 4 --seed 5");
  EXPECT_EQ(sampled.at("subsamples"), 4);
  EXPECT_EQ(sampled.at("tokens"), 64);
  EXPECT_EQ(sampled.at("usable"), 512);
  for (const Json& entry : sampled.at("entries")) {
    EXPECT_GT(entry.at("value").get<double>(), 0) << entry;
    EXPECT_GT(entry.at("standard_error").get<double>(), 0) << entry;
    EXPECT_LT(entry.at("standard_error").get<double>(), entry.at("value").get<double>()) << entry;
    EXPECT_EQ(entry.at("subsample_values").size(), 4u) << entry;
  }
  EXPECT_EQ(sampled, json("work " + files + " --tokens 64 --subsamples 4 --seed 5 --threads 1"));
  EXPECT_NE(sampled.at("entries"),
            json("work " + files + " --tokens 64 --subsamples 4 --seed 6").at("entries"));
  const Ran one = run("work " + files + " --tokens 300 --subsamples 2");
  EXPECT_THAT(one.err, HasSubstr("1 of 2 subsamples"));
}

TEST_F(GeometryCommand, WorkTakesTheSequencesOfItsTokens) {
  // Tokens that move by 1, 2 | 3, 5 | 4: mean 3, and the error over sequences.
  const std::string before = array("before.npy", {1, 1, 1, 1, 1}, {5, 1});
  const std::string after = array("after.npy", {2, 3, 4, 6, 5}, {5, 1});
  const std::string files = "work " + before + " " + after + " --statistic shift";
  const std::string ids = integers("ids.npy", {7, 7, -1, -1, 30});
  const Json given = json(files + " --sequences " + ids);
  EXPECT_NEAR(given.at("raw").at("shift").at("value"), 3, 1e-15);
  EXPECT_NEAR(given.at("raw").at("shift").at("standard_error"), .916515138991, 5e-13);
  EXPECT_EQ(given.at("sequences"), 3);
  EXPECT_EQ(given.at("sequences_given"), true);
  // Nobody says: each token its own, and that is said.
  const Ran assumed = run(files + " --json");
  EXPECT_THAT(assumed.err, HasSubstr("each token is taken as a sequence of its own"));
  EXPECT_EQ(Json::parse(assumed.out).at("sequences"), 5);
  EXPECT_NEAR(Json::parse(assumed.out).at("raw").at("shift").at("standard_error"),
              std::sqrt(10. / 4 / 5), 1e-15);
  EXPECT_THAT(run(files).err, HasSubstr("each token is taken"));
  EXPECT_EQ(run(files + " --sequences " + ids).err.find("each token"), std::string::npos);

  EXPECT_EQ(json(files + " --sequence-length 5").at("sequences"), 1);
  EXPECT_TRUE(
      json(files + " --sequence-length 5").at("raw").at("shift").at("standard_error").is_null());
  EXPECT_THAT(refusal(files + " --sequence-length 2"), HasSubstr("no whole number of sequences"));
  EXPECT_THAT(refusal(files + " --sequences " + integers("few.npy", {1, 2})),
              AllOf(HasSubstr("few.npy"), HasSubstr("each of 5 tokens")));
  EXPECT_THAT(refusal(files + " --sequences " + array("real.npy", {1, 2, 3, 4, 5}, {5})),
              AllOf(HasSubstr("real.npy"), HasSubstr("integers")));
}

TEST_F(GeometryCommand, WorkTakesAStackOfLayers) {
  const std::string before = array("before.npy", {1, 0, 0, 1, 1, 0, 0, 1}, {2, 2, 2});
  const std::string after = array("after.npy", {1, 0, 0, 1, 3, 0, 0, 3}, {2, 2, 2});
  const Json printed = json("work " + before + " " + after + " --statistic shift");
  ASSERT_EQ(printed.at("entries").size(), 6u);
  EXPECT_EQ(printed.at("entries")[0].at("value"), 0.0);
  EXPECT_EQ(printed.at("entries")[3].at("layer"), 1);
  EXPECT_EQ(printed.at("entries")[3].at("value"), 2.0);
  EXPECT_FALSE(printed.contains("raw"));
}

TEST_F(GeometryCommand, AllocationMatchesTheDigitsGiven) {
  const std::string t5 = text("t5.json",
                              R"({"beta": [2.5, 1.2, 0.7, 0.3], "a": [0.25, 0.2, 0.15, 0.1],
                                  "c": 1, "m": 1024, "B": 12288, "q": 64})");
  const Json printed = json("allocate " + t5);
  const std::vector<double> widths = {5353.35480146, 3448.21867275, 2394.47482456, 1091.95170123};
  for (std::size_t l = 0; l < 4; ++l) {
    EXPECT_NEAR(printed.at("widths")[l], widths[l], 1e-10 * widths[l]);
    EXPECT_NEAR(printed.at("report").at("kkt")[l], 1, 1e-12);
  }
  EXPECT_EQ(printed.at("integer_widths"), Json::parse("[5376, 3456, 2368, 1088]"));
  EXPECT_NEAR(printed.at("multiplier"), 1.36488946782e-5, 1e-15);
  EXPECT_NEAR(printed.at("objective"), .894510273134, 1e-11);
  EXPECT_NEAR(printed.at("report").at("integer").at("objective"), .894513654578, 1e-11);
  EXPECT_EQ(printed.at("report").at("integer").at("exact"), true);
  EXPECT_EQ(json("allocate " + t5 + " --quantum 8").at("integer_widths"),
            Json::parse("[5352, 3448, 2392, 1096]"));
  const Json relative = json("allocate " + t5 + " --width-unit relative");
  EXPECT_NEAR(relative.at("widths")[0], 6657.52017332, 1e-7);
  EXPECT_EQ(relative.at("report").at("states"),
            Json::parse(R"(["free", "free", "free", "floor"])"));
}

TEST_F(GeometryCommand, AllocationTakesCapsCostsAndDimensions) {
  const std::string t9 = text("t9.json",
                              R"({"work": [1, 4, 100], "exponents": 1, "floors": [1, 1, 1],
                                  "caps": [null, "Infinity", 6], "budget": 12, "quantum": 1})");
  const Json capped = json("allocate " + t9);
  for (int l = 0; l < 3; ++l) EXPECT_NEAR(capped.at("widths")[l], 2.0 * (l + 1), 1e-12);
  EXPECT_EQ(capped.at("integer_widths"), Json::parse("[2, 4, 6]"));
  EXPECT_EQ(capped.at("report").at("states")[2], "cap");
  const std::string t10 = text("t10.json",
                               R"({"work": [3, 2, 1], "exponent": 0.4, "cost": [2304, 2304, 3072],
                                   "floor": 64, "budget": 2e7, "q": 0})");
  const Json costs = json("allocate " + t10);
  EXPECT_NEAR(costs.at("widths")[2], 1437.15913858, 1e-7);
  EXPECT_TRUE(costs.at("integer_widths").is_null());
  const std::string p1 =
      text("p1.json",
           R"({"work": [0.90, 0.62, 0.48, 0.40, 0.34, 0.30, 0.27, 0.25, 0.24, 0.24, 0.26, 0.33],
          "dimension": [8, 9, 10, 12, 13, 14, 14, 13, 12, 11, 10, 9], "exponent_rule": "2/d",
          "floor": 1024, "budget": 36864})");
  EXPECT_EQ(json("allocate " + p1).at("integer_widths"),
            Json::parse("[5312,4352,3712,3456,3072,2816,2560,2368,2240,2176,2240,2560]"));
  EXPECT_EQ(json("allocate " + p1 + " --width-unit relative").at("integer_widths"),
            Json::parse("[7616,5248,3904,2880,2304,1984,1792,1792,1856,1984,2368,3136]"));
}

TEST_F(GeometryCommand, AllocationCarriesTheErrorsOfTheWork) {
  // Smoothed or not; what one layer gains the other loses. (Numbers: width_problem_test.cc.)
  for (const char* smoothing : {"none", "gaussian"}) {
    const std::string file =
        text("p.json", std::string(R"({"work_subsamples": [[2, 2], [3, 2], [2, 2.5]],
                                       "exponent": 1, "budget": 1280, "q": 8, "smoothing": ")") +
                           smoothing + "\"}");
    const Json report = json("allocate " + file).at("report");
    EXPECT_EQ(report.at("subsamples"), 3);
    EXPECT_GT(report.at("width_errors")[0].get<double>(), 1);
    EXPECT_NEAR(report.at("width_errors")[0], report.at("width_errors")[1], 1e-9);
    EXPECT_EQ(report.at("integer_errors").size(), 2u);
    EXPECT_THAT(run("allocate " + file).out, HasSubstr("(SE)"));
  }
  // The same from a profile, through shaping, solver and rounding.
  std::string profile = R"({"format": "tailor-work-profile", "version": 3, "tokens": 9,
    "linear_tokens": 9, "subsamples": 3, "subsamples_asked": 3, "usable": 30, "sequences": 30,
    "sequences_given": true, "subsample_tokens": [9, 9, 9], "no_error": "", "rho": 0.5, "seed": 1,
    "dropped": 0, "subsample_positions": [], "entries": [ENTRIES]})";
  const auto entry = [](int layer, const std::string& value, const std::string& values) {
    return R"({"layer": )" + std::to_string(layer) +
           R"(, "sub_block": -1, "geometry": "spherical", "statistic": "topology",
               "standard_error": 1, "value": )" +
           value + R"(, "subsample_values": )" + values + "}";
  };
  profile.replace(profile.find("ENTRIES"), 7,
                  entry(0, "2.3333333333333335", "[2, 3, 2]") + "," +
                      entry(1, "2.1666666666666665", "[2, 2, 2.5]"));
  const std::string empty =
      text("empty.json", R"({"exponent": 1, "budget": 1280, "q": 8, "smoothing": "gaussian"})");
  const std::string from =
      " --profile " + text("profile.json", profile) + " --geometry spherical --statistic topology";
  const Json taken = json("allocate " + empty + from).at("report");
  const Json typed =
      json("allocate " + text("typed.json", R"({"work_subsamples": [[2, 2], [3, 2], [2, 2.5]],
               "exponent": 1, "budget": 1280, "q": 8, "smoothing": "gaussian"})"))
          .at("report");
  EXPECT_NEAR(taken.at("width_errors")[0], typed.at("width_errors")[0], 1e-9);
  EXPECT_EQ(taken.at("integer_errors"), typed.at("integer_errors"));
  EXPECT_THAT(refusal("allocate " + text("both.json", R"({"work": [1, 2], "budget": 9})") + from),
              HasSubstr("a profile to take the work from"));
  const Ran alone = run("allocate " + text("alone.json", R"({"work": [2, 2], "budget": 1280,
                                                             "work_errors": [0.2, 0.2]})"));
  EXPECT_EQ(alone.exit_code, 0);
  EXPECT_THAT(alone.err, HasSubstr("errors of layers are correlated"));
}

TEST_F(GeometryCommand, AllocationWithoutRoomForTheDefaultMultipleStillGivesWidths) {
  const Ran ran =
      run("allocate " + text("t1.json", R"({"work": [1, 4, 9], "budget": 12})") + " --json");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const Json printed = Json::parse(ran.out);
  EXPECT_NEAR(printed.at("widths")[2], 6, 1e-12);
  EXPECT_NEAR(printed.at("multiplier"), .25, 1e-12);
  EXPECT_TRUE(printed.at("integer_widths").is_null());
  EXPECT_THAT(ran.err, HasSubstr("no integer widths"));
}

TEST_F(GeometryCommand, AnAllocationWithoutAMultipleBetweenFloorAndCapIsRefusedByLayer) {
  const auto refused = [&](const std::string& problem) {
    return refusal("allocate " + text("problem.json", problem) + " --json");
  };
  EXPECT_THAT(refused(R"({"work": [4, 3, 2, 1], "budget": 1024, "floor": [100, 0, 0, 0],
                          "cap": [100, null, null, null], "quantum": 64})"),
              AllOf(HasSubstr("layer 0"), HasSubstr("multiple of 64")));
  EXPECT_THAT(refused(R"({"work": [4, 3, 2, 1], "budget": 1024, "floor": 0,
                          "cap": [null, null, 60, null], "quantum": 64})"),
              AllOf(HasSubstr("layer 2"), HasSubstr("multiple of 64")));
}

TEST_F(GeometryCommand, AllocationSaysWhichLayersGetNoWidthAndWhichExponentsWereRaised) {
  const Ran ran =
      run("allocate " +
          text("p.json", R"({"work": [4, 0, 2], "budget": 1024, "exponent": [1, 1, 1e-5]})") +
          " --json");
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("width 0: layer 1"), HasSubstr("below 0.02")));
  const Json printed = Json::parse(ran.out);
  EXPECT_EQ(printed.at("report").at("without_width"), Json::parse("[1]"));
  EXPECT_EQ(printed.at("integer_widths")[1], 0);
  EXPECT_EQ(printed.at("report").at("integer").at("optimal"), true);
}

TEST_F(GeometryCommand, ImpossibleAllocationsAreNamed) {
  const auto refused = [&](const std::string& problem) {
    return refusal("allocate " + text("problem.json", problem) + " --json");
  };
  EXPECT_THAT(refused(R"({"work": [1, 2], "floor": 10, "budget": 12})"),
              AllOf(HasSubstr("problem.json"), HasSubstr("infeasible"), HasSubstr("8")));
  EXPECT_THAT(refused(R"({"work": [1, 2], "cap": 5, "budget": 12})"), HasSubstr("over capacity"));
  EXPECT_THAT(refused(R"({"work": [1, "NaN"], "budget": 12})"),
              AllOf(HasSubstr("work of layer 1"), HasSubstr("nan")));
  EXPECT_THAT(refused(R"({"work": [1, -2], "budget": 12})"), HasSubstr("work of layer 1"));
  EXPECT_THAT(refused(R"({"work": [1, 2], "budgit": 12})"), HasSubstr("did you mean \"budget\""));
  EXPECT_THAT(refused(R"({"work": [1, 2]})"), HasSubstr("\"budget\" is missing"));
  EXPECT_THAT(refused(R"({"budget": 3})"), HasSubstr("\"work\""));
  EXPECT_THAT(refused(R"({"work": [1, 2], "beta": [1, 2], "budget": 3})"), HasSubstr("twice"));
  EXPECT_THAT(refused(R"({"work": [1, 2], "a": 1, "d_int": 2, "budget": 3})"),
              HasSubstr("not both"));
  EXPECT_THAT(refused(R"({"work": [1, true], "budget": 3})"), HasSubstr("work[1]"));
  EXPECT_THAT(refused(R"({"work": [1, 2, 3], "cost": [1, 2], "budget": 3})"), HasSubstr("cost"));
  EXPECT_THAT(refused(R"({"work": [1, 2], "budget": 200, "q": 64})"), HasSubstr("tolerance"));
  EXPECT_THAT(refused(R"({"work": [1, 2], "budget": 100, "q": 64})"),
              HasSubstr("infeasible in multiples of 64"));
  EXPECT_THAT(refused(R"({"work": [1, 2], "work": [1], "budget": 9})"),
              HasSubstr("\"work\" is there twice"));
  EXPECT_THAT(refused(R"({"work": [1, 2], "budget": 9007199254740993})"),
              AllOf(HasSubstr("\"budget\""), HasSubstr("2^53")));
  EXPECT_THAT(refused(R"({"work": [1, 2], "budget": 9, "tolerance": -1})"), HasSubstr("tolerance"));
  EXPECT_THAT(refused("{\"work\": " + std::string(100000, '[') + std::string(100000, ']') + "}"),
              HasSubstr("nested more than 128 deep"));
  EXPECT_THAT(refused(R"({"work": [1, 2], "budget": 1e15, "q": 1})"), HasSubstr("multiple"));
  EXPECT_THAT(refused(R"({"work": [1, 2], "budget": 3, "width_unit": "x"})"),
              HasSubstr("relative"));
  EXPECT_THAT(refused("[1, 2"), AllOf(HasSubstr("problem.json"), HasSubstr("line 1")));
  const std::string sound = R"({"work": [1, 2], "budget": 12})";
  EXPECT_THAT(refused(sound + std::string("\0", 1)), HasSubstr("NUL"));
  EXPECT_THAT(refused(sound + std::string("\0{\"budget\": 3}", 15)), HasSubstr("NUL"));
  EXPECT_THAT(refused(sound + sound), HasSubstr("not JSON"));
  EXPECT_THAT(refused(R"({"work": [1, 2], "budget": 12, "budget": 3})"),
              HasSubstr("\"budget\" is there twice"));
  EXPECT_THAT(refused(R"({"work": [1, 1e999], "budget": 12})"), HasSubstr("too large"));
  EXPECT_THAT(refused(std::string(200'000, '[')), HasSubstr("deep"));
  std::string many = R"({"budget": 12, "work": [1)";
  for (int i = 0; i < 100'000; ++i) many += ",1";
  EXPECT_THAT(refused(many + "]}"), HasSubstr("more than 100,000 values"));
  EXPECT_LT(refused("{\"" + std::string(1'000'000, 'k') + "\": 1}").size(), 1000u);
}

TEST_F(GeometryCommand, BrokenInputIsRefusedByFileAndEntry) {
  const std::string nan = array("nan.npy", {0, 1, 2, kNan, 4, 5}, {3, 2});
  EXPECT_THAT(refusal("persistence " + nan),
              AllOf(HasSubstr("nan.npy"), HasSubstr("point 1, coordinate 1")));
  EXPECT_THAT(refusal("dimension " + nan), HasSubstr("nan.npy"));
  EXPECT_THAT(refusal("gw " + data("gw/n2_euclidean/x.npy") + " " + nan), HasSubstr("nan.npy"));
  EXPECT_THAT(refusal("work " + nan + " " + nan),
              AllOf(HasSubstr("nan.npy"), HasSubstr("point 1, coordinate 1")));
  const auto matrix = [&](double a01, double a10, double a11) {
    return "persistence " + array("m.npy", {0, a01, a10, a11}, {2, 2}) + " --distances";
  };
  EXPECT_THAT(refusal(matrix(1, 2, 0)), AllOf(HasSubstr("m.npy"), HasSubstr("not symmetric")));
  EXPECT_THAT(refusal(matrix(-1, -1, 0)), AllOf(HasSubstr("m.npy"), HasSubstr("(1, 0)")));
  EXPECT_THAT(refusal(matrix(kNan, kNan, 0)), AllOf(HasSubstr("m.npy"), HasSubstr("(1, 0)")));
  EXPECT_THAT(refusal(matrix(1, 1, 3)), HasSubstr("diagonal"));
  const std::string oblong = array("oblong.npy", {0, 1, 1, 0, 2, 2}, {3, 2});
  EXPECT_THAT(refusal("persistence " + oblong + " --distances"), HasSubstr("3 x 2"));
  EXPECT_THAT(refusal("wasserstein " + nan + " " + oblong),
              AllOf(HasSubstr("nan.npy"), HasSubstr("row 1")));
  EXPECT_THAT(refusal("wasserstein " + array("d.npy", {2, 1}, {1, 2}) + " " + oblong),
              HasSubstr("row 0"));
  EXPECT_THAT(refusal("wasserstein " + array("d.npy", {2, 1, 3}, {1, 3}) + " " + oblong),
              HasSubstr("(k, 2)"));
  EXPECT_THAT(refusal("gw " + array("two.npy", {0, 1}, {2, 1}) + " " + oblong),
              HasSubstr("two.npy"));
  EXPECT_THAT(refusal("persistence " + array("flat.npy", {0, 1}, {2})), HasSubstr("flat.npy"));
  EXPECT_THAT(refusal("persistence " + text("x.npy", "hello")), HasSubstr("x.npy"));
  EXPECT_EQ(run("persistence " + path("absent.npy")).exit_code, 3);
}

TEST_F(GeometryCommand, BadOptionsAreRefused) {
  const std::string points = data("h1/square4/points.npy");
  const std::string diagram = data("w2/one_vs_one/a.npy");
  EXPECT_THAT(refusal("persistence " + points + " --geometry sphericl"), HasSubstr("spherical"));
  EXPECT_THAT(refusal("persistence " + points + " --geometry hyperbolic --rho 1"),
              HasSubstr("rho"));
  EXPECT_THAT(refusal("persistence " + points + " --threshold -1"), HasSubstr("threshold"));
  EXPECT_THAT(refusal("persistence " + points + " --memory 1e-9"), HasSubstr("GiB"));
  EXPECT_THAT(refusal("wasserstein " + points + " " + points + " --ground 3"), HasSubstr("inf"));
  EXPECT_THAT(refusal("wasserstein " + diagram + " " + diagram + " --order 0.5"),
              HasSubstr("order"));
  EXPECT_THAT(refusal("work " + points + " " + points + " --statistic shft"), HasSubstr("shift"));
  EXPECT_THAT(refusal("persistance " + points), HasSubstr("did you mean persistence"));
  EXPECT_THAT(refusal("gw " + points + " " + points + " --start 3"), HasSubstr("--starts"));
}

TEST_F(GeometryCommand, LongRunsAreAnnouncedOnStderrAndShortOnesAreNot) {
  // Equal clouds are certified by the first start, so the announcement is all that takes long.
  const std::string x = data("gw/identical48_euclidean/x.npy");
  const Ran announced = run("gw " + x + " " + x + " --starts 100000 --threads 1 --json");
  EXPECT_EQ(announced.exit_code, 0);
  EXPECT_THAT(announced.err, AllOf(HasSubstr("about"), HasSubstr("48 points")));
  EXPECT_TRUE(Json::accept(announced.out));
  EXPECT_EQ(run("gw " + x + " " + x + " --starts 0").err, "");
}

TEST_F(GeometryCommand, AMatrixReadAsACloudIsPointedOut) {
  const std::string matrix = array("m.npy", {0, 1, 2, 1, 0, 1, 2, 1, 0}, {3, 3});
  EXPECT_THAT(run("persistence " + matrix).err, HasSubstr("--distances"));
  EXPECT_THAT(run("persistence " + matrix + " --distances").err, Not(HasSubstr("--distances")));
}

TEST_F(GeometryCommand, DirectionsAtOtherLengthsAreRepeatsInEveryStatistic) {
  const std::string folder = std::string(TAILOR_TEST_DATA) + "/directions/";
  const std::string base = folder + "base.npy";
  for (const char* geometry : {"spherical", "hyperbolic"}) {
    const std::string options = std::string(" --geometry ") + geometry;
    const Json expected = json("dimension " + base + options);
    const Json classes = json("persistence " + base + options);
    for (const char* name : {"with_parallel.npy", "with_powers_of_two.npy"}) {
      const Ran ran = run("dimension " + folder + name + options + " --json");
      ASSERT_EQ(ran.exit_code, 0) << ran.err;
      EXPECT_THAT(ran.err, HasSubstr("90 of 210 points"));
      const Json printed = Json::parse(ran.out);
      EXPECT_EQ(printed.at("duplicates"), 90);
      for (const auto& [key, value] : expected.items()) {
        if (key != "duplicates" && key != "dropped" && key != "scales") {
          EXPECT_EQ(printed.at(key), value) << name << " " << key;
        }
      }
      const Json loops = json("persistence " + (folder + name) + options);
      EXPECT_EQ(loops.at("pairs"), classes.at("pairs"));
      EXPECT_EQ(loops.at("duplicates"), 90);
    }
    const Json match =
        json("gw " + folder + "with_parallel.npy " + folder + "with_powers_of_two.npy" + options);
    EXPECT_EQ(match.at("duplicates"), Json::parse("[90, 90]"));
    EXPECT_EQ(match.at("value"), 0.0);
  }
}

TEST_F(GeometryCommand, EstimatesThatAreNotDefinedAreRefusedWithTheirReason) {
  EXPECT_THAT(refusal("dimension " + std::string(TAILOR_TEST_DATA) + "/directions/collinear.npy"),
              HasSubstr("equally far"));
  const std::string points =
      data("id/") + std::filesystem::path(cases("id").front()).filename().string() + "/points.npy";
  EXPECT_THAT(refusal("dimension " + points + " --discarded .9999"), HasSubstr("discard less"));
  for (const char* share : {"1", "-1", "nan", "inf"}) {
    EXPECT_THAT(refusal("dimension " + points + " --discarded=" + share), HasSubstr("discarded"));
  }
  const std::string same = array("same.npy", std::vector<double>(120, 3.0), {60, 2});
  EXPECT_THAT(refusal("dimension " + same), HasSubstr("1 distinct points"));
  EXPECT_THAT(refusal("dimension " + array("tiny.npy", std::vector<double>(120, 1e-20), {60, 2}) +
                      " --geometry spherical"),
              HasSubstr("60 zero vectors"));
}

TEST_F(GeometryCommand, NumbersBeyondFloat64AreNullOrRefusedAndNeverPrinted) {
  const std::string x = array("x.npy", {0, 1e200, 3e200}, {3, 1});
  const std::string y = array("y.npy", {0, 1e200, 4e200}, {3, 1});
  const Ran ran = run("gw " + x + " " + y + " --json");
  ASSERT_EQ(ran.exit_code, 0);
  const Json printed = Json::parse(ran.out);
  EXPECT_NEAR(printed.at("value").get<double>() / 1e200, std::sqrt(2 * (1 + 1) / 9.0), 1e-12);
  EXPECT_TRUE(printed.at("energy").is_null());
  EXPECT_THAT(ran.err, HasSubstr("null"));
  EXPECT_THAT(
      refusal("wasserstein " + array("a.npy", {-1.7e308, 1.7e308, -1.7e308, 1.7e308}, {2, 2}) +
              " " + array("b.npy", {}, {0, 2})),
      HasSubstr("float64"));
}

TEST_F(GeometryCommand, CondensedDistancesAreThoseOfTheSquareMatrix) {
  // Five points; the condensed vector is the upper triangle by rows, (0,1) (0,2) ... (3,4).
  std::vector<double> square(25, 0.0), condensed;
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t j = i + 1; j < 5; ++j) {
      const double distance = 1 + static_cast<double>((3 * i + 5 * j) % 7) / 7;
      condensed.push_back(distance);
      square[i * 5 + j] = square[j * 5 + i] = distance;
    }
  }
  const std::string whole = array("square.npy", square, {5, 5});
  const std::string upper = array("upper.npy", condensed, {10});
  for (const char* command : {"persistence ", "gw "}) {
    const auto files = [&](const std::string& file) {
      return command + file + (command[0] == 'g' ? " " + whole : "") + " --distances";
    };
    EXPECT_EQ(json(files(upper)), json(files(whole))) << command;
  }
  EXPECT_EQ(json("dimension " + upper + " --distances --min-points 5 --neighbours 3"),
            json("dimension " + whole + " --distances --min-points 5 --neighbours 3"));
  EXPECT_THAT(run("persistence " + upper + " --distances").err,
              HasSubstr("condensed distances of 5"));
  EXPECT_THAT(refusal("persistence " + array("odd.npy", condensed, {5, 2}) + " --distances"),
              HasSubstr("5 x 2"));
  condensed.pop_back();
  EXPECT_THAT(refusal("persistence " + array("nine.npy", condensed, {9}) + " --distances"),
              AllOf(HasSubstr("9 numbers"), HasSubstr("n (n - 1) / 2")));
  EXPECT_THAT(refusal("persistence " + upper), HasSubstr("--distances"));
  square[1] = std::nextafter(square[1], 9.0);
  EXPECT_THAT(refusal("persistence " + array("ulp.npy", square, {5, 5}) + " --distances"),
              AllOf(HasSubstr("entry (1, 0)"), HasSubstr("(D + D.T) / 2")));
}

// Sanitizers need address space and memory of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST_F(GeometryCommand, WhatWouldNotFitIsRefusedBeforeAnythingIsRead) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes more address space than is given here";
  const auto sparse = [&](const std::string& name, std::size_t points, std::size_t dimension) {
    // A header, and zeros that take no room on disk.
    const std::vector<std::size_t> shape = {points, dimension};
    const std::string one =
        geometry::format_npy(std::vector<double>{0}, std::vector<std::size_t>{1, 1});
    std::string header = one.substr(0, one.size() - 8);
    const std::string from = "(1, 1)",
                      to = std::to_string(points) + ", " + std::to_string(dimension);
    const std::size_t at = header.find(from);
    header.replace(at, from.size(), "(" + to + ")");
    const std::size_t longer = to.size() + 2 - from.size();
    header.erase(header.rfind('\n') - longer, longer);  // of the padding
    const std::string file = text(name, header);
    std::filesystem::resize_file(file, header.size() + 8 * points * dimension);
    return file;
  };
  for (const std::size_t points : {30000u, 80000u, 300000u}) {
    const std::string cloud = sparse("cloud.npy", points, 4);
    for (const std::string& command :
         {"persistence " + cloud, "dimension " + cloud, "gw " + cloud + " " + cloud,
          "work " + cloud + " " + cloud + " --tokens " + std::to_string(points)}) {
      const std::string program = "(ulimit -v 4000000; '" TAILOR_BIN_DIR "/tailor' geometry ";
      const std::string err = path("stderr");
      const int status = std::system((program + command + ") >/dev/null 2>" + err).c_str());
      EXPECT_EQ(WEXITSTATUS(status), 2) << command;
      const std::string said = read_file(err).value_or("");
      EXPECT_THAT(said, ::testing::AnyOf(
                            AllOf(HasSubstr("needs"), HasSubstr("GiB"), HasSubstr("ulimit -v")),
                            HasSubstr("more than 65535")))
          << command;
    }
  }
  const std::string lie = text("lie.npy", read_file(sparse("x.npy", 3, 4))->substr(0, 200));
  EXPECT_THAT(refusal("persistence " + lie), HasSubstr("cut short"));
  const std::string points = data("h1/square4/points.npy");
  for (const std::string& command :
       {"persistence " + points, "dimension " + points, "gw " + points + " " + points,
        "work " + points + " " + points,
        "wasserstein " + data("w2/one_vs_one/a.npy") + " " + data("w2/one_vs_one/a.npy")}) {
    EXPECT_THAT(refusal(command + " --memory 1e-6"),
                AllOf(HasSubstr("needs"), HasSubstr("--memory")));
    EXPECT_THAT(refusal(command + " --memory 0"), HasSubstr("--memory"));
    EXPECT_THAT(refusal(command + " --memory=nan"), HasSubstr("--memory"));
  }
}

// Bytes that the program held at most.
double peak_memory(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {TAILOR_BIN_DIR "/tailor", "geometry"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  pid_t process = 0;
  EXPECT_EQ(::posix_spawn(&process, argv[0], &files, nullptr, argv.data(), environ), 0);
  ::posix_spawn_file_actions_destroy(&files);
  int status = 0;
  rusage usage{};
  EXPECT_EQ(::wait4(process, &status, 0, &usage), process);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

TEST_F(GeometryCommand, WhatIsSaidToBeNeededIsWhatIsUsed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes memory of its own";
  double x = 0.3;
  const auto cloud = [&](const std::string& name, std::size_t n, std::size_t d) {
    std::vector<double> values(n * d);
    for (double& value : values) value = x = 3.99 * x * (1 - x);  // points in general position
    return array(name, values, {n, d});
  };
  const std::string large = cloud("large.npy", 2500, 8), small = cloud("small.npy", 700, 8),
                    other = cloud("other.npy", 700, 8);
  using Words = std::vector<std::string>;
  for (const Words& words :
       {Words{"persistence", large}, Words{"dimension", large},
        Words{"gw", small, other, "--starts", "0"},
        Words{"work", small, other, "--tokens", "600", "--subsamples", "2", "--threads", "1"}}) {
    std::string command;
    for (const std::string& word : words) command += word + " ";
    const std::string said = refusal(command + "--memory 1e-6");
    const std::size_t at = said.find("needs ");
    ASSERT_NE(at, std::string::npos) << said;
    char unit[8] = {};
    double needed = 0;
    ASSERT_EQ(std::sscanf(said.c_str() + at, "needs %lf %7s", &needed, unit), 2) << said;
    needed *= std::string(unit) == "GiB" ? 1 << 30 : 1 << 20;
    const double used = peak_memory(words);
    EXPECT_LE(used, needed) << command;
    EXPECT_GE(used, needed / 2) << command;
  }
}

TEST_F(GeometryCommand, HelpStartsWithExamplesAndSaysWhichDefaultsAreOurs) {
  for (const char* command :
       {"persistence", "wasserstein", "gw", "dimension", "work", "allocate"}) {
    const Ran help = run(std::string(command) + " --help");
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_EQ(help.out.rfind("Examples:", 0), 0u) << help.out;
    EXPECT_THAT(help.out, HasSubstr("ours")) << command;
  }
}

}  // namespace
}  // namespace tailor
