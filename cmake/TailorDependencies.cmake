# Third-party packages: all from Debian 12, but LibTorch and Plotly's JavaScript, which deploy/setup.sh
# unpacks from their PyPI wheels into third_party/ (ignored). README.md says what each is for.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(nlohmann_json REQUIRED)
find_package(Eigen3 REQUIRED NO_MODULE)
find_package(Protobuf REQUIRED)
find_package(SQLiteCpp REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(ICU 72 REQUIRED COMPONENTS uc i18n)
find_package(Boost 1.74 REQUIRED COMPONENTS system filesystem)

if(TAILOR_GRPC)
  find_package(gRPC CONFIG REQUIRED)
  find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
  find_library(GRPCPP_REFLECTION_LIBRARY grpc++_reflection REQUIRED)
  find_package(prometheus-cpp CONFIG REQUIRED COMPONENTS core)
endif()

if(TAILOR_TESTS)
  find_package(GTest REQUIRED)
endif()

# Header-only libraries without a CMake package of their own.
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)
find_path(EXPECTED_INCLUDE_DIR tl/expected.hpp REQUIRED)
find_path(CLI11_INCLUDE_DIR CLI/CLI.hpp REQUIRED)
if(NOT TARGET CLI11::CLI11)
  add_library(CLI11::CLI11 INTERFACE IMPORTED)
  target_include_directories(CLI11::CLI11 SYSTEM INTERFACE ${CLI11_INCLUDE_DIR})
endif()

set(TAILOR_THIRD_PARTY "${PROJECT_SOURCE_DIR}/third_party" CACHE PATH "What deploy/setup.sh unpacked")

if(TAILOR_TORCH)
  include(TailorTorch)
endif()
