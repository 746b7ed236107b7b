// A stand-in for NVIDIA's management library. Its GPUs are read from FAKE_NVML at every call:
// "name=...,uuid=...,total=BYTES,used=BYTES,ecc=COUNT|none,mig=1,fail=CODE;..." one part a GPU.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

std::vector<std::string> parts(const std::string& text, char separator) {
  std::vector<std::string> found{""};
  for (const char c : text) {
    if (c == separator) {
      found.emplace_back();
    } else {
      found.back() += c;
    }
  }
  return found;
}

std::vector<std::string> gpus() {
  const char* text = std::getenv("FAKE_NVML");
  return text == nullptr ? std::vector<std::string>() : parts(text, ';');
}

std::string field(const std::string& gpu, const std::string& key) {
  for (const std::string& part : parts(gpu, ',')) {
    if (part.rfind(key + "=", 0) == 0) return part.substr(key.size() + 1);
  }
  return "";
}

unsigned long long number(const std::string& gpu, const std::string& key) {
  return std::strtoull(field(gpu, key).c_str(), nullptr, 10);
}

std::string of(void* device) {
  const auto index = reinterpret_cast<std::uintptr_t>(device) - 1;
  const auto all = gpus();
  return index < all.size() ? all[index] : "fail=15";
}

int failure(void* device) { return static_cast<int>(number(of(device), "fail")); }

int text(void* device, const std::string& key, char* out, unsigned length) {
  if (const int code = failure(device)) return code;
  std::strncpy(out, field(of(device), key).c_str(), length);
  return 0;
}

}  // namespace

struct Memory {
  unsigned long long total, free, used;
};

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "some error"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(gpus().size());
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<std::uintptr_t>(index) + 1);
  return 0;
}
int nvmlDeviceGetName(void* device, char* out, unsigned length) {
  return text(device, "name", out, length);
}
int nvmlDeviceGetUUID(void* device, char* out, unsigned length) {
  return text(device, "uuid", out, length);
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  if (const int code = failure(device)) return code;
  const std::string gpu = of(device);
  *memory = {number(gpu, "total"), number(gpu, "total") - number(gpu, "used"), number(gpu, "used")};
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, int, int, unsigned long long* count) {
  if (const int code = failure(device)) return code;
  if (field(of(device), "ecc") == "none") return 3;
  *count = number(of(device), "ecc");
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *current = *pending = static_cast<unsigned>(number(of(device), "mig"));
  return 0;
}
}
