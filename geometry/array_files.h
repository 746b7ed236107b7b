// Clouds, distances, diagrams and stacks of layers in .npy files: which shapes they have, and what
// their numbers must be. A file's header is read first and nothing else, so that a caller can say
// what it will hold in memory before any of it is allocated.
//
// Everything in a file is outside input. Errors: kInvalidArgument with the file's name, the entry
// and what to do, and those of NpyFile. Threads: pure functions of files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "geometry/cloud.h"
#include "geometry/distance.h"
#include "geometry/npy.h"
#include "geometry/rips.h"

namespace tailor::geometry {

/// A cloud or the distances of one, of which the header has been read and nothing else.
struct CloudFile {
  std::string path;
  NpyFile file;
  bool distances = false;  ///< a square matrix, or condensed
  bool condensed = false;  ///< the upper triangle by rows, as scipy's pdist writes it
  std::size_t points = 0;
  std::size_t dimension = 0;  ///< 0 for distances
};
Result<CloudFile> open_cloud(const std::string& path, bool distances);
/// The points; every number is finite. REQUIRES: no distances. Once.
Result<Cloud> read_cloud(CloudFile& from);
/// The distances: finite, symmetric, not negative, zero on the diagonal. REQUIRES: distances. Once.
Result<DistanceMatrix> read_distances(CloudFile& from);

/// A diagram of which the header has been read: rows (birth, death).
struct DiagramFile {
  std::string path;
  NpyFile file;
  std::size_t bars = 0;
};
/// An array without entries is the empty diagram, whatever its shape.
Result<DiagramFile> open_diagram(const std::string& path);
/// Deaths may be infinite. Once.
Result<Diagram> read_diagram(DiagramFile& from);

/// One cloud a layer: [points, coordinates], or [layers, points, coordinates].
struct Stack {
  std::size_t layers = 1, points = 0, dimension = 0;
  std::vector<float> values;
  bool rounded = false;  ///< some number was no float32
};
struct StackFile {
  std::string path;
  NpyFile file;
  Stack stack = {};  ///< without values
};
Result<StackFile> open_stack(const std::string& path);
/// Once.
Result<Stack> read_stack(StackFile& from);

/// The sequence of every token: an array of `points` whole numbers, any. Takes 16 bytes a token.
Result<std::vector<std::int64_t>> read_sequences(const std::string& path, std::size_t points);

/// Points without a direction (norm below kZeroNorm), by index.
std::vector<bool> zero_points(const Cloud& cloud);
/// Takes the points out where `drop` is set. REQUIRES: one entry a point.
void remove_points(Cloud& cloud, const std::vector<bool>& drop);
/// Square, symmetric, not negative and zero on the diagonal: most likely distances, not points.
bool looks_like_distances(const Cloud& cloud);

}  // namespace tailor::geometry
