// GradientReducer: sums the gradients of a ParameterSet over the ranks, bucket by bucket, while the
// backward pass still makes the others.
//
// c10d's Reducer works over the fp32 leaves, whose gradients are slices of the flat buffer: when
// one is complete (with what earlier micro-batches left there), it is copied into a bucket of about
// 25 MiB; the buckets are summed in the order in which they fill, and the sums copied back. Sums
// are of fp32 numbers whatever the products are made of.
//
// Which leaves get gradients, and in which order, is learned from the first backward pass; that
// step is summed afterwards in one piece. A leaf whose gradient comes more than once a pass cannot
// be summed early: then every step is summed afterwards.
#pragma once

#include <cstdint>
#include <memory>

#include "model/net/parameters.h"
#include "model/train/ranks/group.h"

namespace tailor::train::ranks {

/// Threads: one.
class GradientReducer {
 public:
  static constexpr std::int64_t kBucketBytes = 25 << 20;

  /// References must outlive it. The graph must be the same in every step and on every rank.
  GradientReducer(net::ParameterSet& parameters, Group& group,
                  std::int64_t bucket_bytes = kBucketBytes);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Before the backward pass of the last micro-batch of a step. Earlier passes are not touched.
  void prepare();
  /// After it: gradient() of the ParameterSet holds the sums over all ranks. Throws GroupLost (so
  /// may the backward pass itself throw, with another type).
  void finish();
  /// True when sums overlap the backward pass (from the second step on).
  bool overlaps() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tailor::train::ranks
