# SPDX-License-Identifier: MIT
# Compiler and linker flags. `vrampool_flags` carries the warnings to every
# target of this project (never to its users); sanitizers and hardening hold
# for the whole build tree.

include(CheckCCompilerFlag)

add_library(vrampool_flags INTERFACE)

# The prototype warnings exist in C only.
set(common_warnings
    -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wcast-qual -Wpointer-arith
    -Wswitch-enum -Wvla -Wformat=2 -Wdouble-promotion)
set(c_warnings -Wstrict-prototypes -Wmissing-prototypes)
target_compile_options(
  vrampool_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:${common_warnings}>"
                           "$<$<COMPILE_LANGUAGE:C>:${c_warnings}>")
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
  target_compile_options(
    vrampool_flags INTERFACE
      "$<$<COMPILE_LANGUAGE:C>:-Wshorten-64-to-32;-Wmissing-variable-declarations;-Wextra-semi-stmt>")
endif()
if(VRAMPOOL_WERROR)
  target_compile_options(vrampool_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Werror>)
endif()
target_compile_definitions(vrampool_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE>)

# Nothing leaves a library that is not marked, in every build type.
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# A line table in release too: a profile or a crash names its source line.
set(CMAKE_C_FLAGS_RELEASE "-O3 -DNDEBUG -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG -g1")

if(VRAMPOOL_SANITIZE)
  string(REPLACE ";" "," sanitizers "${VRAMPOOL_SANITIZE}")
  set(sanitize_flags -fsanitize=${sanitizers} -fno-omit-frame-pointer)
  if(sanitizers MATCHES "undefined")
    list(APPEND sanitize_flags -fno-sanitize-recover=all)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${sanitize_flags}>")
  add_link_options(-fsanitize=${sanitizers})
  add_compile_definitions(VRPI_SANITIZE=1)
else()
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong>")
  # glibc warns about FORTIFY without optimisation.
  add_compile_options(
    "$<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
endif()
add_link_options(LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)

# Only for the library's own objects. A thread-local read is on the hot path:
# initial-exec makes it one load. glibc keeps room for it in libraries that are
# loaded later; tests/abi holds the library's thread-locals small enough.
set(VRAMPOOL_LIBRARY_FLAGS -ftls-model=initial-exec)
check_c_compiler_flag(-fno-semantic-interposition has_no_interposition)
if(has_no_interposition)
  list(APPEND VRAMPOOL_LIBRARY_FLAGS -fno-semantic-interposition)
endif()
# Sanitizer run-times are found when the program is linked, not the library.
set(VRAMPOOL_SHARED_LINK_FLAGS LINKER:-Bsymbolic-functions)
if(NOT VRAMPOOL_SANITIZE)
  list(APPEND VRAMPOOL_SHARED_LINK_FLAGS LINKER:--no-undefined)
endif()
