// See nvml.h.
#include "worker/agent/device/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

namespace tailor::agent {
namespace {

// Of the library's documented interface.
constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kUncorrected = 1;      // kind of memory error
constexpr int kSinceDriverLoad = 0;  // which count of them

template <typename Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

struct Nvml::Library {
  struct MemoryInfo {  // here, not above: a type without linkage may not be in a type with
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
  };
  void* library = nullptr;
  bool ready = false;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, void**) = nullptr;
  int (*name)(void*, char*, unsigned) = nullptr;
  int (*uuid)(void*, char*, unsigned) = nullptr;
  int (*memory)(void*, MemoryInfo*) = nullptr;
  int (*ecc)(void*, int, int, unsigned long long*) = nullptr;         // may be missing
  int (*mig)(void*, unsigned* current, unsigned* pending) = nullptr;  // may be missing

  ~Library() {
    if (ready) shutdown();
    if (library != nullptr) ::dlclose(library);
  }
  Status failed(std::string_view what, int code) const {
    const char* text = error_string(code);
    return Status(Code::kUnavailable, fmt::format("NVIDIA's driver cannot {}: {}", what,
                                                  text != nullptr ? text : "unknown error"));
  }
};

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Nvml::~Nvml() = default;

Result<std::unique_ptr<Nvml>> Nvml::open(const std::string& library) {
  auto l = std::make_unique<Library>();
  l->library = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (l->library == nullptr) return error(Code::kNotFound, ::dlerror());
  const bool all = find(l->library, "nvmlInit_v2", l->init) &&
                   find(l->library, "nvmlShutdown", l->shutdown) &&
                   find(l->library, "nvmlErrorString", l->error_string) &&
                   find(l->library, "nvmlDeviceGetCount_v2", l->count) &&
                   find(l->library, "nvmlDeviceGetHandleByIndex_v2", l->by_index) &&
                   find(l->library, "nvmlDeviceGetName", l->name) &&
                   find(l->library, "nvmlDeviceGetUUID", l->uuid) &&
                   find(l->library, "nvmlDeviceGetMemoryInfo", l->memory);
  if (!all) {
    return error(Code::kUnavailable, library + " lacks a function: the driver is too old");
  }
  find(l->library, "nvmlDeviceGetTotalEccErrors", l->ecc);
  find(l->library, "nvmlDeviceGetMigMode", l->mig);
  if (const int code = l->init(); code != kSuccess) return error(l->failed("start", code));
  l->ready = true;
  return std::unique_ptr<Nvml>(new Nvml(std::move(l)));
}

Result<void*> Nvml::handle(std::uint32_t index) {
  void* device = nullptr;
  if (const int code = library_->by_index(index, &device); code != kSuccess) {
    return error(library_->failed(fmt::format("reach GPU {}", index), code));
  }
  return device;
}

Result<std::vector<Nvml::Device>> Nvml::devices(std::vector<std::string>* trouble) {
  unsigned count = 0;
  if (const int code = library_->count(&count); code != kSuccess) {
    return error(library_->failed("count the GPUs", code));
  }
  std::vector<Device> devices;
  for (unsigned index = 0; index < count; ++index) {
    const Result<void*> device = handle(index);
    if (!device) {
      trouble->push_back(device.error().message());
      continue;
    }
    char name[128] = {}, uuid[128] = {};
    Library::MemoryInfo memory{};
    int code = library_->uuid(*device, uuid, sizeof uuid - 1);
    if (code == kSuccess) code = library_->name(*device, name, sizeof name - 1);
    if (code == kSuccess) code = library_->memory(*device, &memory);
    if (code == kNotSupported) code = kSuccess;  // a GPU that shares the host's memory
    if (code != kSuccess) {
      trouble->push_back(library_->failed(fmt::format("describe GPU {}", index), code).message());
      continue;
    }
    unsigned current = 0, pending = 0;
    const bool mig = library_->mig != nullptr &&
                     library_->mig(*device, &current, &pending) == kSuccess && current != 0;
    devices.push_back({index, uuid, name, memory.total, mig});
  }
  return devices;
}

Result<std::uint64_t> Nvml::memory_in_use(std::uint32_t index) {
  TAILOR_ASSIGN_OR_RETURN(void* const device, handle(index));
  Library::MemoryInfo memory{};
  const int code = library_->memory(device, &memory);
  if (code != kSuccess && code != kNotSupported) {
    return error(library_->failed(fmt::format("read the memory of GPU {}", index), code));
  }
  return std::uint64_t{memory.used};
}

Result<std::optional<std::uint64_t>> Nvml::uncorrected_errors(std::uint32_t index) {
  if (library_->ecc == nullptr) return std::optional<std::uint64_t>();
  TAILOR_ASSIGN_OR_RETURN(void* const device, handle(index));
  unsigned long long errors = 0;
  const int code = library_->ecc(device, kUncorrected, kSinceDriverLoad, &errors);
  if (code == kNotSupported) return std::optional<std::uint64_t>();
  if (code != kSuccess) {
    return error(library_->failed(fmt::format("read the errors of GPU {}", index), code));
  }
  return std::optional<std::uint64_t>(errors);
}

}  // namespace tailor::agent
