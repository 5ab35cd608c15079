# A CMake toolchain that compiles static Linux executables for any architecture with zig as the C compiler.
#
#   cmake -S . -B build/agent-aarch64 -DCMAKE_TOOLCHAIN_FILE=tools/zig.cmake -DCALYX_ZIG=/path/to/zig -DCALYX_ARCH=aarch64
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CALYX_ZIG CALYX_ARCH)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${CALYX_ARCH})
set(CMAKE_C_COMPILER ${CALYX_ZIG} cc -target ${CALYX_ARCH}-linux-musl)
