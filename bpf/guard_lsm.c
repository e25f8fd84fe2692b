/*
 * Owns the maps of policies, made once by guard.c for an engine's life, and the programs that
 * read them, attached with the first policy.
 *
 * Must hold: the maps exist where the kernel takes no LSM programs; either all programs that the
 * kernel has hooks for are attached, or none.
 */
#include "bpf/guard_lsm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "bpf/guard_violations.h"
#include "bpf/policy.h" /* the skeletons speak of its structs */
#include "bpf/calls.skel.h"
#include "bpf/file.skel.h"
#include "bpf/process.skel.h"
#include "bpf/rules.skel.h"

enum { LINKS_MAX = 80 };

/* How sections are named, and the functions that their programs are attached to. */
#define HOOK_SECTION	 "lsm/"
#define HOOK_FUNCTION	 "bpf_lsm_"
#define FUNCTION_SECTION "fexit/"

struct guard_lsm {
	struct rules_bpf *rules;
	struct file_bpf *file;
	struct process_bpf *process;
	struct calls_bpf *calls;
	struct bpf_link *links[LINKS_MAX];
	char names[LINKS_MAX][BPF_OBJ_NAME_LEN]; /* of their programs */
	uint32_t link_count;
	bool is_attached; /* its links are there, or pinned and not held here */
};

static const char *const map_names[GUARD_MAPS] = {
	[GUARD_MAP_SANDBOXES] = "sandboxes",   [GUARD_MAP_POLICIES] = "policies",
	[GUARD_MAP_RULES] = "rules",	       [GUARD_MAP_PATHS] = "paths",
	[GUARD_MAP_IOCTLS] = "ioctls",	       [GUARD_MAP_FAMILIES] = "families",
	[GUARD_MAP_UNIX_NAMES] = "unix_names", [GUARD_MAP_CREATIONS] = "creations",
};

int guard_lsm_open(char *log, size_t log_bytes, struct guard_lsm **ret)
{
	LIBBPF_OPTS(bpf_object_open_opts, open, .kernel_log_buf = log,
		    .kernel_log_size = log_bytes);
	struct guard_lsm *lsm = calloc(1, sizeof(*lsm));
	int r;

	if (!lsm)
		return -ENOMEM;
	lsm->rules = rules_bpf__open_opts(&open);
	r = lsm->rules ? rules_bpf__load(lsm->rules) : -errno;
	if (r < 0) {
		guard_lsm_close(lsm);
		return r;
	}
	*ret = lsm;
	return 0;
}

static bool kernel_has_place(const struct btf *kernel, const char *section)
{
	const bool is_hook = !strncmp(section, HOOK_SECTION, strlen(HOOK_SECTION));
	char function[96];
	int bytes = snprintf(function, sizeof(function), "%s%s", is_hook ? HOOK_FUNCTION : "",
			     section + strlen(is_hook ? HOOK_SECTION : FUNCTION_SECTION));

	return bytes > 0 && (size_t)bytes < sizeof(function) &&
	       btf__find_by_name_kind(kernel, function, BTF_KIND_FUNC) >= 0;
}

/* The maps that exist, and only programs for hooks that the kernel has. */
static int object_prepare(const struct guard_lsm *lsm, const struct guard_lsm_place *place,
			  struct bpf_object *object, const struct btf *kernel)
{
	struct bpf_program *program;
	struct bpf_map *map;
	int r = guard_violation_maps_share(place->violations, object);

	for (int i = 0; r == 0 && i < GUARD_MAPS; i++) {
		map = bpf_object__find_map_by_name(object, map_names[i]);
		r = map ? bpf_map__reuse_fd(map, guard_lsm_map_fd(lsm, (enum guard_map)i)) : 0;
	}
	if (r < 0)
		return r;
	bpf_object__for_each_program(program, object)
	{
		if (!kernel_has_place(kernel, bpf_program__section_name(program)))
			(void)bpf_program__set_autoload(program, false);
	}
	return 0;
}

static int object_attach(struct guard_lsm *lsm, const struct bpf_object *object)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, object)
	{
		struct bpf_link *link;

		if (!bpf_program__autoload(program))
			continue;
		if (lsm->link_count == LINKS_MAX)
			return -E2BIG;
		link = bpf_program__attach(program);
		if (!link)
			return -errno;
		(void)strncpy(lsm->names[lsm->link_count], bpf_program__name(program),
			      BPF_OBJ_NAME_LEN - 1);
		lsm->links[lsm->link_count++] = link;
	}
	return 0;
}

static void links_close(struct guard_lsm *lsm)
{
	for (uint32_t i = 0; i < lsm->link_count; i++)
		(void)bpf_link__destroy(lsm->links[i]);
	lsm->link_count = 0;
}

/* Links hold their programs, and those their maps. */
static void objects_close(struct guard_lsm *lsm)
{
	file_bpf__destroy(lsm->file);
	process_bpf__destroy(lsm->process);
	calls_bpf__destroy(lsm->calls);
	lsm->file = NULL;
	lsm->process = NULL;
	lsm->calls = NULL;
}

static int objects_open(struct guard_lsm *lsm, uint32_t slot_level)
{
	lsm->file = file_bpf__open();
	lsm->process = lsm->file ? process_bpf__open() : NULL;
	lsm->calls = lsm->process ? calls_bpf__open() : NULL;
	if (!lsm->calls)
		return -errno;
	lsm->file->rodata->slot_level = slot_level;
	lsm->process->rodata->slot_level = slot_level;
	lsm->calls->rodata->slot_level = slot_level;
	return 0;
}

int guard_lsm_attach(struct guard_lsm *lsm, const struct guard_lsm_place *place)
{
	struct btf *kernel = btf__load_vmlinux_btf();
	int r = kernel ? objects_open(lsm, place->slot_level) : -errno;
	struct bpf_object *const objects[] = {
		r < 0 ? NULL : lsm->file->obj,
		r < 0 ? NULL : lsm->process->obj,
		r < 0 ? NULL : lsm->calls->obj,
	};
	const size_t count = sizeof(objects) / sizeof(*objects);

	for (size_t i = 0; r == 0 && i < count; i++)
		r = object_prepare(lsm, place, objects[i], kernel);
	btf__free(kernel);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = bpf_object__load(objects[i]);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = object_attach(lsm, objects[i]);
	objects_close(lsm);
	if (r < 0)
		links_close(lsm);
	else
		lsm->is_attached = true;
	return r;
}

int guard_lsm_pin(struct guard_lsm *lsm, const struct guard_pins *pins)
{
	int r = 0;

	for (int i = 0; r == 0 && i < GUARD_MAPS; i++)
		r = guard_pins_add(pins, guard_lsm_map_fd(lsm, (enum guard_map)i), map_names[i]);
	for (uint32_t i = 0; r == 0 && i < lsm->link_count; i++)
		r = guard_pins_add(pins, bpf_link__fd(lsm->links[i]), lsm->names[i]);
	if (r == 0)
		links_close(lsm); /* a descriptor each */
	return r;
}

bool guard_lsm_is_attached(const struct guard_lsm *lsm)
{
	return lsm->is_attached;
}

void guard_lsm_close(struct guard_lsm *lsm)
{
	if (!lsm)
		return;
	links_close(lsm);
	rules_bpf__destroy(lsm->rules);
	free(lsm);
}

int guard_lsm_map_fd(const struct guard_lsm *lsm, enum guard_map map)
{
	return bpf_map__fd(bpf_object__find_map_by_name(lsm->rules->obj, map_names[map]));
}
