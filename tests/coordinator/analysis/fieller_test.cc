// Ratios of gains: Fieller's interval against a root search in scipy, refusals, coverage.
#include "coordinator/analysis/fieller.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

#include "base/rng.h"

namespace tailor::analysis {
namespace {

using testing::HasSubstr;

TEST(Fieller, GivesTheRootsOfItsDefinition) {
  // scipy.optimize.brentq of mean(a - rho b)^2 - t^2 var(a - rho b) / n.
  const Ratio ratio = fieller_ratio(std::vector<double>{-.019, -.024, -.013, -.021, -.016},
                                    std::vector<double>{-.006, -.009, -.004, -.008, -.005});
  EXPECT_EQ(ratio.n, 5u);
  EXPECT_NEAR(ratio.value.value(), 2.90625, 1e-12);
  EXPECT_NEAR(ratio.low.value(), 2.617450888774411, 1e-9);
  EXPECT_NEAR(ratio.high.value(), 3.536072012552712, 1e-9);
}

TEST(Fieller, RefusesWhatIsDividedByANumberThatMayBeZero) {
  // "6.3 x the taper": the taper's own gain of .003 is not told from 0.
  const Ratio ratio = fieller_ratio(std::vector<double>{-.017, -.021, -.016, -.017, -.024},
                                    std::vector<double>{-.010, .004, -.006, .005, -.008});
  EXPECT_FALSE(ratio.value.has_value());
  EXPECT_THAT(ratio.refused, HasSubstr("cannot be told from 0 (n = 5"));
  EXPECT_THAT(fieller_ratio(std::vector<double>{1}, std::vector<double>{2}).refused,
              HasSubstr("1 common seeds"));
  EXPECT_FALSE(
      fieller_ratio(std::vector<double>{0, 0}, std::vector<double>{0, 0}).value.has_value());
}

TEST(Fieller, CoversTheTrueRatio) {
  // 1,500 samples of five pairs: the standard error of .95 is .006.
  Rng rng(31);
  int covered = 0, refused = 0;
  for (int sample = 0; sample < 1'500; ++sample) {
    std::vector<double> a, b;
    for (int i = 0; i < 5; ++i) {
      const double shared = rng.normal();
      a.push_back(6 + 1.5 * shared + rng.normal());
      b.push_back(3 + 0.5 * shared + 0.5 * rng.normal());
    }
    const Ratio ratio = fieller_ratio(a, b);
    if (!ratio.value) {
      ++refused;
      continue;
    }
    covered += *ratio.low <= 2 && 2 <= *ratio.high ? 1 : 0;
  }
  EXPECT_LT(refused, 15);
  EXPECT_NEAR(covered / (1'500.0 - refused), 0.95, 0.02);
}

}  // namespace
}  // namespace tailor::analysis
