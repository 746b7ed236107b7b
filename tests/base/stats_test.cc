#include "base/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace tailor {
namespace {

TEST(StudentT, OneAndTwoDegreesOfFreedomFollowTheirClosedForms) {
  for (const double t : {-50.0, -3.0, -0.7, 0.0, 0.1, 1.0, 2.5, 400.0}) {
    EXPECT_NEAR(student_t_cdf(t, 1), 0.5 + std::atan(t) / std::numbers::pi, 1e-14) << t;
    EXPECT_NEAR(student_t_cdf(t, 2), 0.5 + t / (2 * std::sqrt(2 + t * t)), 1e-14) << t;
  }
  for (const double p : {0.001, 0.025, 0.3, 0.5, 0.9, 0.975, 0.9999}) {
    const double cauchy = std::tan(std::numbers::pi * (p - 0.5));
    EXPECT_NEAR(student_t_quantile(p, 1), cauchy, 1e-11 * (1 + std::abs(cauchy))) << p;
    const double two = (2 * p - 1) * std::sqrt(2 / (4 * p * (1 - p)));
    EXPECT_NEAR(student_t_quantile(p, 2), two, 1e-11 * (1 + std::abs(two))) << p;
  }
}

TEST(StudentT, QuantilesForConfidenceIntervalsAreThoseOfTheTables) {
  EXPECT_NEAR(student_t_quantile(0.975, 1), 12.7062047362, 1e-9);
  EXPECT_NEAR(student_t_quantile(0.975, 2), 4.3026527297, 1e-9);
  EXPECT_NEAR(student_t_quantile(0.975, 4), 2.7764451052, 1e-9);
  EXPECT_NEAR(student_t_quantile(0.975, 9), 2.2621571628, 1e-9);
  EXPECT_NEAR(student_t_quantile(0.975, 30), 2.0422724563, 1e-9);
  EXPECT_NEAR(student_t_quantile(0.975, 1e6), 1.9599663, 2e-6);
}

TEST(StudentT, TheReferenceVectorOfFiveSeedsComesOut) {
  const std::vector<double> uniform = {3.441, 3.470, 3.425, 3.463, 3.446};
  const std::vector<double> rule = {3.424, 3.449, 3.409, 3.446, 3.422};
  double mean = 0, squares = 0;
  for (std::size_t i = 0; i < 5; ++i) mean += (rule[i] - uniform[i]) / 5;
  for (std::size_t i = 0; i < 5; ++i) squares += std::pow(rule[i] - uniform[i] - mean, 2);
  const double sd = std::sqrt(squares / 4), error = sd / std::sqrt(5.0);
  EXPECT_NEAR(sd, 0.0033911650, 1e-10);
  EXPECT_NEAR(mean / error, -12.5282289945, 1e-9);
  EXPECT_NEAR(student_t_two_sided_p(mean / error, 4), 0.0002335434, 5e-11);
  const double half = student_t_quantile(0.975, 4) * error;
  EXPECT_NEAR(mean - half, -0.0232106875, 5e-11);
  EXPECT_NEAR(mean + half, -0.0147893125, 5e-11);
}

TEST(StudentT, TheQuantileUndoesTheDistributionFunction) {
  for (const double df : {1.0, 2.5, 4.0, 17.0, 250.0, 1e5}) {
    for (const double t : {-8.0, -1.3, -0.01, 0.2, 2.0, 6.0}) {
      EXPECT_NEAR(student_t_quantile(student_t_cdf(t, df), df), t, 1e-7 * (1 + std::abs(t))) << df;
    }
  }
}

TEST(StudentT, EndsAndSymmetryHold) {
  EXPECT_EQ(student_t_quantile(0, 3), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(student_t_quantile(1, 3), std::numeric_limits<double>::infinity());
  EXPECT_EQ(student_t_quantile(0.5, 3), 0);
  EXPECT_EQ(student_t_two_sided_p(std::numeric_limits<double>::infinity(), 3), 0);
  EXPECT_EQ(student_t_two_sided_p(0, 3), 1);
  EXPECT_TRUE(std::isnan(student_t_two_sided_p(std::nan(""), 3)));
  EXPECT_DOUBLE_EQ(student_t_two_sided_p(-2, 7), student_t_two_sided_p(2, 7));
}

TEST(IncompleteBeta, HasItsClosedFormsAndItsSymmetry) {
  for (const double x : {0.0, 0.01, 0.3, 0.5, 0.77, 1.0}) {
    EXPECT_NEAR(incomplete_beta(1, 1, x), x, 1e-15);
    EXPECT_NEAR(incomplete_beta(2, 3, x), x * x * (6 - 8 * x + 3 * x * x), 1e-14);
    EXPECT_NEAR(incomplete_beta(3.5, 0.7, x), 1 - incomplete_beta(0.7, 3.5, 1 - x), 1e-13);
  }
}

/// P(|T'| >= t) by integrating over the chi distribution of the standard error (Simpson): another
/// way to the same number.
double power_by_integration(double t, double df, double shift) {
  const auto normal = [](double z) { return std::erfc(-z / std::sqrt(2.0)) / 2; };
  const double log_constant = std::log(2.0) + df / 2 * std::log(df / 2) - std::lgamma(df / 2);
  const auto integrand = [&](double s) {
    if (s <= 0) return 0.0;
    const double density = std::exp(log_constant + (df - 1) * std::log(s) - df * s * s / 2);
    return density * (normal(-t * s + shift) + normal(-t * s - shift));
  };
  constexpr int kSteps = 200'000;
  const double high = 1 + 12 / std::sqrt(df);
  const double h = high / kSteps;
  double sum = df == 1 ? std::exp(log_constant) : 0;  // the density at 0, where Phi + Phi = 1
  sum += integrand(high);
  for (int i = 1; i < kSteps; ++i) sum += (i % 2 == 1 ? 4 : 2) * integrand(i * h);
  return sum * h / 3;
}

TEST(NoncentralT, WithoutAShiftItIsStudentsT) {
  for (const double df : {1.0, 4.0, 30.0, 999.0}) {
    for (const double t : {0.0, 0.5, 2.0, 12.7}) {
      EXPECT_NEAR(noncentral_t_two_sided_p(t, df, 0), student_t_two_sided_p(t, df), 1e-14);
    }
  }
}

TEST(NoncentralT, AgreesWithTheIntegralOverTheStandardError) {
  for (const double df : {1.0, 2.0, 4.0, 9.0, 24.0, 999.0}) {
    const double t = student_t_quantile(0.975, df);
    for (const double shift : {0.3, 1.0, 2.8, 6.0, 16.0}) {
      EXPECT_NEAR(noncentral_t_two_sided_p(t, df, shift), power_by_integration(t, df, shift), 1e-9)
          << "df " << df << " shift " << shift;
      EXPECT_DOUBLE_EQ(noncentral_t_two_sided_p(t, df, shift),
                       noncentral_t_two_sided_p(t, df, -shift));
    }
  }
}

TEST(NoncentralT, GivesThePowerOfTheTextbookSampleSizes) {
  // A paired t-test at .05 two-sided: 34 pairs find d = 0.5 with power .8078, 33 with less than .8.
  const auto power = [](double n, double d) {
    return noncentral_t_two_sided_p(student_t_quantile(0.975, n - 1), n - 1, d * std::sqrt(n));
  };
  EXPECT_NEAR(power(34, 0.5), 0.8078, 5e-5);
  EXPECT_LT(power(33, 0.5), 0.8);
  EXPECT_NEAR(power(5, 10), 1, 1e-12);
}

}  // namespace
}  // namespace tailor
