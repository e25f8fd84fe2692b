# dsec_warnings: what every compilation of ours gets, freestanding ones too.
# dsec_flags:    dsec_warnings, hardening, instrumentation and the include roots.
# dsec_mimalloc: the allocator; DSEC_MIMALLOC=0 under sanitizers, which must see every malloc.

# Criterion's Test() defines functions and variables that nobody declares.
set(dsec_is_test $<BOOL:$<TARGET_PROPERTY:DSEC_TEST>>)

add_library(dsec_warnings INTERFACE)
target_compile_options(dsec_warnings INTERFACE
	-Wall -Wextra -Wshadow -Wvla -Wundef -Wstrict-prototypes
	-Wimplicit-fallthrough -Wpointer-arith -Wwrite-strings
	$<$<C_COMPILER_ID:GNU>:-Wjump-misses-init>
	$<$<NOT:${dsec_is_test}>:-Wmissing-prototypes>
	$<$<AND:$<C_COMPILER_ID:Clang>,$<NOT:${dsec_is_test}>>:-Wmissing-variable-declarations>
	$<$<BOOL:${DSEC_WERROR}>:-Werror>)

add_library(dsec_flags INTERFACE)
target_link_libraries(dsec_flags INTERFACE dsec_warnings)
target_compile_definitions(dsec_flags INTERFACE _GNU_SOURCE)
target_include_directories(dsec_flags INTERFACE "${PROJECT_SOURCE_DIR}/sdk/include")
target_compile_options(dsec_flags INTERFACE
	"SHELL:-iquote \"${PROJECT_SOURCE_DIR}\""
	-fvisibility=hidden -fno-omit-frame-pointer
	-fstack-protector-strong -fstack-clash-protection
	$<$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},x86_64>:-fcf-protection>)
target_link_options(dsec_flags INTERFACE -Wl,-z,relro -Wl,-z,now)

set(dsec_sanitizers "")
if(DSEC_SANITIZE)
	list(APPEND dsec_sanitizers address undefined)
endif()
if(DSEC_TSAN)
	list(APPEND dsec_sanitizers thread)
endif()
list(JOIN dsec_sanitizers "," dsec_sanitizer_list)

if(dsec_sanitizers)
	target_compile_options(dsec_flags INTERFACE
		-fsanitize=${dsec_sanitizer_list} -fno-sanitize-recover=all)
	target_link_options(dsec_flags INTERFACE -fsanitize=${dsec_sanitizer_list})
elseif(NOT CMAKE_BUILD_TYPE STREQUAL Debug)
	target_compile_options(dsec_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
if(DSEC_FUZZ)
	target_compile_options(dsec_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(DSEC_COVERAGE)
	target_compile_options(dsec_flags INTERFACE -fprofile-instr-generate -fcoverage-mapping)
	target_link_options(dsec_flags INTERFACE -fprofile-instr-generate)
endif()

add_library(dsec_mimalloc INTERFACE)
if(dsec_sanitizers)
	target_compile_definitions(dsec_mimalloc INTERFACE DSEC_MIMALLOC=0)
else()
	find_package(mimalloc REQUIRED)
	target_link_libraries(dsec_mimalloc INTERFACE mimalloc)
	target_compile_definitions(dsec_mimalloc INTERFACE DSEC_MIMALLOC=1)
endif()
