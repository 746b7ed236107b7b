#include "model/train/ranks/backend.h"

#include <ATen/core/jit_type.h>

#include <stdexcept>

namespace tailor::train::ranks {
namespace {

// An operation on its way.
class MeshWork final : public c10d::Work {
 public:
  MeshWork(int rank, c10d::OpType type, std::vector<at::Tensor> tensors)
      : Work(rank, type),
        tensors_(std::move(tensors)),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {}

  std::vector<at::Tensor> result() override { return tensors_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

  void over(const Status& status) {
    if (status) {
      finish();
      future_->markCompleted(c10::IValue(tensors_));
    } else {
      const auto failure = std::make_exception_ptr(std::runtime_error(status.message()));
      finish(failure);
      future_->setError(failure);
    }
  }

 private:
  std::vector<at::Tensor> tensors_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

void check_dense(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.device().is_cpu() && tensor.layout() == at::kStrided &&
                  tensor.is_non_overlapping_and_dense(),
              "tailor's ranks take dense CPU tensors");
}

}  // namespace

MeshBackend::MeshBackend(Mesh& mesh) : Backend(mesh.rank(), mesh.size()), mesh_(mesh) { init(); }

c10::intrusive_ptr<c10d::Work> MeshBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                      const c10d::AllreduceOptions& options) {
  TORCH_CHECK(tensors.size() == 1 && options.reduceOp == c10d::ReduceOp::SUM,
              "tailor's ranks sum one tensor at a time");
  const at::Tensor tensor = tensors[0];
  check_dense(tensor);
  auto work = c10::make_intrusive<MeshWork>(rank_, c10d::OpType::ALLREDUCE, tensors);
  const auto start = [&]<typename T>(T* data) {
    mesh_.sum(std::span<T>(data, static_cast<std::size_t>(tensor.numel())),
              [work](const Status& status) { work->over(status); });
  };
  switch (tensor.scalar_type()) {
    case at::kFloat:
      start(tensor.mutable_data_ptr<float>());
      break;
    case at::kDouble:
      start(tensor.mutable_data_ptr<double>());
      break;
    case at::kInt:
      start(tensor.mutable_data_ptr<std::int32_t>());
      break;
    case at::kLong:
      start(tensor.mutable_data_ptr<std::int64_t>());
      break;
    default:
      TORCH_CHECK(false, "tailor's ranks do not sum tensors of ", tensor.scalar_type());
  }
  return work;
}

c10::intrusive_ptr<c10d::Work> MeshBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                      const c10d::BroadcastOptions& options) {
  TORCH_CHECK(tensors.size() == 1, "tailor's ranks broadcast one tensor at a time");
  check_dense(tensors[0]);
  auto work = c10::make_intrusive<MeshWork>(rank_, c10d::OpType::BROADCAST, tensors);
  mesh_.broadcast(bytes_of(tensors[0]), static_cast<int>(options.rootRank),
                  [work](const Status& status) { work->over(status); });
  return work;
}

c10::intrusive_ptr<c10d::Work> MeshBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                      std::vector<at::Tensor>& inputs,
                                                      const c10d::AllgatherOptions&) {
  TORCH_CHECK(inputs.size() == 1 && outputs.size() == 1 &&
                  outputs[0].size() == static_cast<std::size_t>(size_),
              "tailor's ranks gather one tensor at a time");
  check_dense(inputs[0]);
  for (const at::Tensor& output : outputs[0]) {
    check_dense(output);
    TORCH_CHECK(output.nbytes() == inputs[0].nbytes(), "gathered tensors must have one size");
  }
  auto work = c10::make_intrusive<MeshWork>(rank_, c10d::OpType::ALLGATHER, outputs[0]);
  auto all = std::make_shared<std::vector<std::byte>>(inputs[0].nbytes() * outputs[0].size());
  mesh_.gather(bytes_of(inputs[0]), *all,
               [work, all, input = inputs[0], places = outputs[0]](const Status& status) {
                 std::size_t begin = 0;
                 for (const at::Tensor& place : places) {
                   const auto bytes = bytes_of(place);
                   if (status) std::copy_n(all->begin() + begin, bytes.size(), bytes.begin());
                   begin += bytes.size();
                 }
                 work->over(status);
               });
  return work;
}

c10::intrusive_ptr<c10d::Work> MeshBackend::barrier(const c10d::BarrierOptions&) {
  auto work =
      c10::make_intrusive<MeshWork>(rank_, c10d::OpType::BARRIER, std::vector<at::Tensor>());
  mesh_.gather({}, {}, [work](const Status& status) { work->over(status); });
  return work;
}

}  // namespace tailor::train::ranks
