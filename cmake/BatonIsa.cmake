# Kernel files are compiled once per instruction set, each time into its own namespace.

# What the compiler may assume at each level; Isa (ops/cpu/isa.h) is chosen at run time. plain is the reference: the settings of the rest
# of the binary, without automatic vectorisation.
set(BATON_ISA_OPTIONS_plain -O2 -fno-tree-vectorize -march=x86-64-v3)
set(BATON_ISA_OPTIONS_avx2 -O3 -march=x86-64-v3)
# -Wno-uninitialized: the AVX-512 intrinsics of GCC 12 warn about their own "undefined" operands (GCC bug 105593).
set(BATON_ISA_OPTIONS_avx512
  -O3 -march=x86-64-v4 -mavx512bf16 -mavx512vbmi -mgfni -mprefer-vector-width=512 -Wno-uninitialized
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
set(BATON_ISA_OPTIONS_amx ${BATON_ISA_OPTIONS_avx512} -mamx-tile -mamx-bf16)
set(BATON_ISA_FLOATS_plain 1)
set(BATON_ISA_FLOATS_avx2 8)
set(BATON_ISA_FLOATS_avx512 16)
set(BATON_ISA_FLOATS_amx 16)

# isa_sources(OUT variable NAME unique SOURCES a.cc ... [ISAS plain avx2 avx512])
# Compiles every source once per instruction set with BATON_ISA_NAMESPACE (plain, avx2, avx512, amx) and BATON_VECTOR_FLOATS (1, 8, 16, 16)
# defined, and sets `variable` to the objects, to be listed among the SOURCES of a room.
# Such files must not instantiate templates or inline functions of the standard library that could be emitted out of line: the linker keeps
# one copy for the whole program, and that copy could be the wide one.
function(isa_sources)
  cmake_parse_arguments(S "" "OUT;NAME" "SOURCES;ISAS" ${ARGN})
  if(NOT S_ISAS)
    set(S_ISAS plain avx2 avx512)
  endif()
  set(objects "")
  foreach(isa ${S_ISAS})
    set(target baton_isa_${S_NAME}_${isa})
    add_library(${target} OBJECT ${S_SOURCES})
    # The settings of the project without their -march, which would come last and win.
    target_compile_options(${target} PRIVATE
      $<FILTER:$<TARGET_PROPERTY:baton_settings,INTERFACE_COMPILE_OPTIONS>,EXCLUDE,^-march=> ${BATON_ISA_OPTIONS_${isa}})
    target_include_directories(${target} PRIVATE $<TARGET_PROPERTY:baton_settings,INTERFACE_INCLUDE_DIRECTORIES>)
    target_compile_definitions(${target} PRIVATE BATON_ISA_NAMESPACE=${isa} BATON_VECTOR_FLOATS=${BATON_ISA_FLOATS_${isa}})
    list(APPEND objects $<TARGET_OBJECTS:${target}>)
  endforeach()
  set(${S_OUT} ${objects} PARENT_SCOPE)
endfunction()
