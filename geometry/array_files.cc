#include "geometry/array_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tailor::geometry {
namespace {

std::string shape_text(const std::vector<std::size_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

tl::unexpected<Status> refused(std::string what) {
  return error(Code::kInvalidArgument, std::move(what));
}

}  // namespace

Result<CloudFile> open_cloud(const std::string& path, bool distances) {
  TAILOR_ASSIGN_OR_RETURN(NpyFile file, NpyFile::open(path));
  CloudFile result{path, std::move(file)};
  const std::vector<std::size_t>& shape = result.file.shape();
  result.distances = distances;
  if (!distances) {
    if (shape.size() != 2) {
      return refused(
          fmt::format("{}: a cloud has the shape (points, coordinates); this array has the "
                      "shape {}{}",
                      path, shape_text(shape),
                      shape.size() == 1 ? " (for condensed distances add --distances)" : ""));
    }
    result.points = shape[0];
    result.dimension = shape[1];
    return result;
  }
  if (shape.size() == 1) {
    const auto points = condensed_points(shape[0]);
    if (!points) {
      return refused(
          fmt::format("{}: {} numbers are no condensed distances: n points have n (n - 1) / 2 of "
                      "them",
                      path, shape[0]));
    }
    result.condensed = true;
    result.points = *points;
    return result;
  }
  if (shape.size() != 2 || shape[0] != shape[1]) {
    return refused(
        fmt::format("{}: distances are a square matrix, or condensed, n (n - 1) / 2 numbers as "
                    "scipy's pdist writes them; this array {} (leave out --distances for a "
                    "cloud)",
                    path,
                    shape.size() == 2 ? fmt::format("is {} x {}", shape[0], shape[1])
                                      : "has the shape " + shape_text(shape)));
  }
  result.points = shape[0];
  return result;
}

Result<Cloud> read_cloud(CloudFile& from) {
  Cloud cloud;
  TAILOR_ASSIGN_OR_RETURN(cloud.values, from.file.doubles());
  cloud.count = from.points;
  cloud.dimension = from.dimension;
  TAILOR_RETURN_IF_ERROR(check_finite(cloud.view(), from.path));
  return cloud;
}

Result<DistanceMatrix> read_distances(CloudFile& from) {
  const std::size_t n = from.points;
  std::vector<double> square;
  if (!from.condensed) {
    TAILOR_ASSIGN_OR_RETURN(square, from.file.doubles());
  } else {
    square.assign(n * n, 0.0);
    std::size_t i = 0, j = 0;
    while (true) {
      TAILOR_ASSIGN_OR_RETURN(const auto numbers, from.file.next());
      if (numbers.empty()) break;
      for (const double distance : numbers) {
        if (++j == n) j = ++i + 1;
        square[i * n + j] = square[j * n + i] = distance;
      }
    }
  }
  auto matrix = DistanceMatrix::from_square(std::move(square), n, from.file.spacing());
  if (!matrix) return error(matrix.error().with_context(from.path));
  return matrix;
}

Result<DiagramFile> open_diagram(const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(NpyFile file, NpyFile::open(path));
  DiagramFile result{path, std::move(file)};
  const std::vector<std::size_t>& shape = result.file.shape();
  if (result.file.size() == 0 && !shape.empty()) return result;
  if (shape.size() != 2 || shape[1] != 2) {
    return refused(
        fmt::format("{}: a diagram is an array of rows (birth, death), shape (k, 2); this "
                    "one has shape {}",
                    path, shape_text(shape)));
  }
  result.bars = shape[0];
  return result;
}

Result<Diagram> read_diagram(DiagramFile& from) {
  TAILOR_ASSIGN_OR_RETURN(const std::vector<double> values, from.file.doubles());
  Diagram bars;
  bars.reserve(from.bars);
  for (std::size_t row = 0; row < from.bars; ++row) {
    const Bar bar{values[2 * row], values[2 * row + 1]};
    if (!std::isfinite(bar.birth) || !(bar.death >= bar.birth)) {
      return refused(
          fmt::format("{}: row {} is ({}, {}); a birth must be finite and a death a "
                      "number not below it (infinity is allowed)",
                      from.path, row, bar.birth, bar.death));
    }
    bars.push_back(bar);
  }
  return bars;
}

Result<StackFile> open_stack(const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(NpyFile file, NpyFile::open(path));
  StackFile result{path, std::move(file)};
  const std::vector<std::size_t>& shape = result.file.shape();
  const std::size_t rank = shape.size();
  if (rank != 2 && rank != 3) {
    return refused(
        fmt::format("{}: expected shape (points, coordinates) or (layers, points, "
                    "coordinates); this array has {} dimensions",
                    path, rank));
  }
  if (rank == 3) result.stack.layers = shape[0];
  result.stack.points = shape[rank - 2];
  result.stack.dimension = shape[rank - 1];
  return result;
}

Result<Stack> read_stack(StackFile& from) {
  Stack stack = from.stack;
  const bool layered = from.file.shape().size() == 3;
  TAILOR_ASSIGN_OR_RETURN(stack.values, from.file.floats(stack.rounded, [&](std::size_t place) {
    const std::size_t token = place / stack.dimension;
    return fmt::format("{}point {}, coordinate {}",
                       layered ? fmt::format("layer {}, ", token / stack.points) : "",
                       token % stack.points, place % stack.dimension);
  }));
  return stack;
}

Result<std::vector<std::int64_t>> read_sequences(const std::string& path, std::size_t points) {
  TAILOR_ASSIGN_OR_RETURN(NpyFile file, NpyFile::open(path));
  if (file.type() == NpyType::kF4 || file.type() == NpyType::kF8) {
    return refused(
        fmt::format("{}: the sequences of tokens are integers (i4, i8 or u2); this array holds {}",
                    path, npy_type_name(file.type())));
  }
  if (file.shape().size() != 1 || file.size() != points) {
    return refused(fmt::format(
        "{}: expected one sequence number for each of {} tokens, shape ({}); this array "
        "has {} dimensions and {} numbers",
        path, points, points, file.shape().size(), file.size()));
  }
  TAILOR_ASSIGN_OR_RETURN(const std::vector<double> numbers, file.doubles());
  std::vector<std::int64_t> sequences;
  sequences.reserve(points);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    // Beyond 2^53 two different ones could look the same.
    if (!(std::abs(numbers[i]) <= 0x1p53)) {
      return refused(fmt::format("{}: the sequence of token {} is beyond 2^53", path, i));
    }
    sequences.push_back(static_cast<std::int64_t>(numbers[i]));
  }
  return sequences;
}

std::vector<bool> zero_points(const Cloud& cloud) {
  std::vector<bool> zero(cloud.count);
  for (std::size_t i = 0; i < cloud.count; ++i) {
    zero[i] = norm(cloud.view().row(i)) < kZeroNorm;
  }
  return zero;
}

void remove_points(Cloud& cloud, const std::vector<bool>& drop) {
  const auto row = [&cloud](std::size_t i) {
    return cloud.values.begin() + static_cast<std::ptrdiff_t>(i * cloud.dimension);
  };
  std::size_t kept = 0;
  for (std::size_t i = 0; i < cloud.count; ++i) {
    if (drop[i]) continue;
    if (kept != i) std::copy(row(i), row(i + 1), row(kept));
    ++kept;
  }
  cloud.count = kept;
  cloud.values.resize(kept * cloud.dimension);
}

bool looks_like_distances(const Cloud& cloud) {
  if (cloud.count < 3 || cloud.count != cloud.dimension) return false;
  const std::size_t n = cloud.count;
  for (std::size_t i = 0; i < n; ++i) {
    if (cloud.values[i * n + i] != 0) return false;
    for (std::size_t j = 0; j < i; ++j) {
      const double lower = cloud.values[i * n + j];
      if (!(lower >= 0) || lower != cloud.values[j * n + i]) return false;
    }
  }
  return true;
}

}  // namespace tailor::geometry
