# bpf_object(NAME SOURCE): compiles SOURCE (x.bpf.c) for the kernel and gives the INTERFACE target
# bpf_NAME, with which user space includes the skeleton as "bpf/NAME.skel.h" (struct NAME_bpf).

find_program(DSEC_BPF_CLANG clang REQUIRED)
find_program(DSEC_BPFTOOL bpftool PATHS /usr/sbin /sbin REQUIRED)
find_program(DSEC_BPF_STRIP NAMES llvm-strip llvm-strip-14 llvm-strip-19 REQUIRED)

set(dsec_bpf_include "${PROJECT_BINARY_DIR}/generated")
set(dsec_bpf_dir "${dsec_bpf_include}/bpf")
file(MAKE_DIRECTORY "${dsec_bpf_dir}")
set(dsec_vmlinux_btf /sys/kernel/btf/vmlinux)

if(DSEC_VMLINUX_H)
	add_custom_command(OUTPUT "${dsec_bpf_dir}/vmlinux.h"
		COMMAND "${CMAKE_COMMAND}" -E copy "${DSEC_VMLINUX_H}" "${dsec_bpf_dir}/vmlinux.h"
		DEPENDS "${DSEC_VMLINUX_H}" VERBATIM)
elseif(EXISTS "${dsec_vmlinux_btf}")
	add_custom_command(OUTPUT "${dsec_bpf_dir}/vmlinux.h"
		COMMAND sh -c "\"$1\" btf dump file \"$2\" format c >\"$3.new\" && mv \"$3.new\" \"$3\""
			sh "${DSEC_BPFTOOL}" "${dsec_vmlinux_btf}" "${dsec_bpf_dir}/vmlinux.h"
		VERBATIM)
else()
	message(FATAL_ERROR "This kernel has no ${dsec_vmlinux_btf} (CONFIG_DEBUG_INFO_BTF): "
		"configure with -DDSEC_VMLINUX_H=PATH")
endif()
add_custom_target(bpf_vmlinux DEPENDS "${dsec_bpf_dir}/vmlinux.h")

string(REGEX REPLACE "^(x86)_64$" "\\1" dsec_bpf_arch "${CMAKE_SYSTEM_PROCESSOR}")
string(REPLACE aarch64 arm64 dsec_bpf_arch "${dsec_bpf_arch}")

function(bpf_object name source)
	cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
	set(base "${dsec_bpf_dir}/${name}")
	set(werror $<$<BOOL:${DSEC_WERROR}>:-Werror>)

	add_custom_command(OUTPUT "${base}.bpf.o" DEPFILE "${base}.bpf.d"
		COMMAND "${DSEC_BPF_CLANG}" -target bpf -mcpu=v3 -O2 -g -std=gnu17
			-Wall -Wextra -Wno-unused-parameter "${werror}"
			-D__TARGET_ARCH_${dsec_bpf_arch}
			-iquote "${PROJECT_SOURCE_DIR}" -iquote "${dsec_bpf_dir}"
			-MD -MF "${base}.bpf.d" -MT "${base}.bpf.o"
			-c "${source}" -o "${base}.bpf.o"
		COMMAND "${DSEC_BPF_STRIP}" -g "${base}.bpf.o"
		DEPENDS "${source}" "${dsec_bpf_dir}/vmlinux.h"
		COMMENT "Building BPF object ${name}.bpf.o"
		COMMAND_EXPAND_LISTS VERBATIM)
	add_custom_command(OUTPUT "${base}.skel.h"
		COMMAND sh -c "\"$1\" gen skeleton \"$2\" name \"$3\" >\"$4.new\" && mv \"$4.new\" \"$4\""
			sh "${DSEC_BPFTOOL}" "${base}.bpf.o" "${name}_bpf" "${base}.skel.h"
		DEPENDS "${base}.bpf.o"
		COMMENT "Generating skeleton ${name}.skel.h"
		VERBATIM)

	add_custom_target(bpf_${name}_skeleton DEPENDS "${base}.skel.h")
	add_dependencies(bpf_${name}_skeleton bpf_vmlinux)
	add_library(bpf_${name} INTERFACE)
	add_dependencies(bpf_${name} bpf_${name}_skeleton)
	target_include_directories(bpf_${name} SYSTEM INTERFACE "${dsec_bpf_include}")
	target_link_libraries(bpf_${name} INTERFACE PkgConfig::libbpf)
endfunction()
