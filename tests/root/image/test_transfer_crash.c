/*
 * Pushes and pulls that end where nobody wants it: killed at every one of their system calls. A
 * layout never shows an image that it has not whole, the next push or pull works, and then nothing
 * of the one that was killed is left.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "backends/store/gc.h"
#include "backends/store/transfer.h"
#include "backends/store/verify.h"
#include "tests/unit/store_place.h"

#define PLACE "/dev/shm/dsec-transfer-crash.XXXXXX"

enum { CALLS_MAX = 4000, FILES_MAX = 64, NAME_BYTES = 96 };

/* A store with two images, a layout that has the first one, and an empty store. */
struct world {
	struct place_of store, layout, other;
	struct store_images one, two;
	bool is_packed;
};

/* What is to be killed. */
typedef int transfer_fn(struct world *world);

static int push(const struct world *world, const struct store_images *images, const char *tag)
{
	struct transfer transfer = {
		.store = &world->store.store,
		.layout_fd = world->layout.fd,
		.tag = tag,
		.is_packed = world->is_packed,
	};

	return store_push(&transfer, images);
}

static int pull_tag(const struct world *world, const char *tag, struct store_images *ret)
{
	struct transfer transfer = {
		.store = &world->other.store,
		.layout_fd = world->layout.fd,
		.tag = tag,
		.bytes_max = 1 << 30,
	};

	return store_pull(&transfer, ret);
}

static int two_push(struct world *world)
{
	return push(world, &world->two, "two");
}

static int two_pull(struct world *world)
{
	auto_free struct store_images *got = calloc(1, sizeof *got);
	int r = pull_tag(world, "two", got);

	cr_assert(r < 0 || !memcmp(got->manifests, world->two.manifests, DIGEST_BYTES));
	return r;
}

static void seal(struct place_of *at, uint32_t from, struct store_images *ret)
{
	struct sealed sealed;
	struct raw raw;
	char name[16];

	raw_new(&raw);
	for (uint32_t i = 0; i < 3; i++) {
		(void)snprintf(name, sizeof name, "f%02u", i);
		(void)raw_file(&raw, name, from + i, 100 + (from + i) * 30000);
	}
	cr_assert_eq(raw_seal(at, &raw, &sealed), 0);
	raw_free(&raw);
	ret->count = 1;
	memcpy(ret->manifests[0], sealed.manifest, DIGEST_BYTES);
}

static struct world *world_new(bool is_packed)
{
	struct world *world = calloc(1, sizeof *world);

	cr_assert(world);
	world->is_packed = is_packed;
	world->store = world->layout = world->other = (struct place_of){ .path = PLACE };
	store_new(&world->store);
	store_new(&world->layout);
	store_new(&world->other);
	store_close(&world->layout.store); /* a push makes it what it is */
	seal(&world->store, 1, &world->one);
	seal(&world->store, 7, &world->two);
	cr_assert_eq(push(world, &world->one, "one"), 0);
	return world;
}

static void world_free(struct world *world)
{
	store_gone(&world->store);
	store_gone(&world->layout);
	store_gone(&world->other);
	free(world);
}

/* ---- what is there ---- */

struct names {
	char names[FILES_MAX][NAME_BYTES];
	unsigned count;
};

static void names_add(int folder_fd, const char *prefix, struct names *ret)
{
	DIR *dir = fdopendir(openat(folder_fd, *prefix ? prefix : ".", O_RDONLY | O_DIRECTORY));

	cr_assert_not_null(dir, "%s", prefix);
	for (const struct dirent *entry; (entry = readdir(dir));) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		cr_assert_lt(ret->count, FILES_MAX);
		(void)snprintf(ret->names[ret->count++], NAME_BYTES, "%s/%.80s", prefix,
			       entry->d_name);
	}
	closedir(dir);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void names_read(const struct place_of *at, struct names *ret)
{
	*ret = (struct names){ 0 };
	names_add(at->fd, "", ret);
	names_add(at->fd, "blobs/sha256", ret);
	qsort(ret->names, ret->count, NAME_BYTES, by_text);
}

/* Back to what it was: the next kill has as much to do as this one. */
static void place_reset(const struct place_of *at, const struct names *kept)
{
	struct names now;

	names_read(at, &now);
	for (unsigned i = 0; i < now.count; i++)
		if (!bsearch(now.names[i], kept->names, kept->count, NAME_BYTES, by_text))
			cr_assert_eq(unlinkat(at->fd, now.names[i] + (*now.names[i] == '/'), 0), 0,
				     "%s", now.names[i]);
}

static void names_check(const struct place_of *at, const struct names *wanted)
{
	struct names now;

	names_read(at, &now);
	cr_assert_eq(now.count, wanted->count, "something is left, or missing");
	cr_assert_eq(memcmp(now.names, wanted->names, sizeof now.names), 0);
}

/* ---- killed ---- */

static int stop_wait(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, __WALL) < 0)
		cr_assert_eq(errno, EINTR);
	return status;
}

/* Killed before its call of that number takes place. False: it had ended. */
static bool transfer_kill(struct world *world, transfer_fn *run, uint32_t call)
{
	pid_t pid = fork();
	int status;

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(3);
		(void)raise(SIGSTOP);
		_exit(run(world) < 0 ? 2 : 0);
	}
	status = stop_wait(pid);
	cr_assert(WIFSTOPPED(status));
	cr_assert_eq(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_EXITKILL), 0);
	for (uint32_t i = 0; i < 2 * call + 1 && WIFSTOPPED(status); i++) {
		cr_assert_eq(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
		status = stop_wait(pid);
	}
	if (!WIFSTOPPED(status)) {
		cr_assert(WIFEXITED(status));
		cr_assert_eq(WEXITSTATUS(status), 0);
		return false;
	}
	cr_assert_eq(kill(pid, SIGKILL), 0);
	status = stop_wait(pid);
	cr_assert(WIFSIGNALED(status));
	return true;
}

static char *index_read(const struct world *world)
{
	char *text = calloc(1, 4096);

	auto_close int fd = openat(world->layout.fd, "index.json", O_RDONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0, "it is never away");
	cr_assert_geq(read(fd, text, 4095), 2);
	return text;
}

/* What the layout shows can be had: the first image always, the second not at all or whole. */
static void layout_check(const struct world *world, const struct names *empty)
{
	auto_free struct store_images *got = calloc(1, sizeof *got);
	auto_free char *index = index_read(world);
	int r;

	cr_assert_eq(pull_tag(world, "one", got), 0);
	r = pull_tag(world, "two", got);
	cr_assert_eq(r, strstr(index, "\"two\"") ? 0 : -ENOENT, "%d", r);
	place_reset(&world->other, empty);
}

static void pushes_are_killed(bool is_packed)
{
	struct world *world = world_new(is_packed);
	auto_free char *before = index_read(world);
	auto_free struct names *kept = malloc(sizeof *kept), *all = malloc(sizeof *all),
			       *empty = malloc(sizeof *empty);
	uint32_t call;

	names_read(&world->other, empty);
	names_read(&world->layout, kept);
	cr_assert_eq(two_push(world), 0);
	names_read(&world->layout, all);
	for (call = 0; call < CALLS_MAX; call++) {
		bool killed;

		auto_close int index =
			openat(world->layout.fd, "index.json", O_WRONLY | O_TRUNC | O_CLOEXEC);
		cr_assert_eq(write(index, before, strlen(before)), (ssize_t)strlen(before));
		place_reset(&world->layout, kept);
		killed = transfer_kill(world, two_push, call);
		layout_check(world, empty);
		cr_assert_eq(two_push(world), 0, "the next one works");
		names_check(&world->layout, all);
		if (!killed)
			break;
	}
	cr_assert_lt(call, CALLS_MAX);
	cr_assert_gt(call, 30);
	layout_check(world, empty);
	world_free(world);
}

Test(transfer_crash, a_push_that_is_killed_at_any_call_shows_no_half_image)
{
	pushes_are_killed(false);
}

Test(transfer_crash, a_packed_push_that_is_killed_at_any_call_shows_no_half_image)
{
	pushes_are_killed(true);
}

static int fault_note(void *owner, const struct verify_fault *fault)
{
	cr_log_warn("%s is %s: %s", fault->what, fault->how, fault->digest);
	++*(uint64_t *)owner;
	return 0;
}

/* What has a name is whole, and gc takes all of it, since no image was made. */
static void store_check(const struct place_of *at, const struct names *empty)
{
	const struct gc_wish gc = { 0 };
	uint64_t faults = 0;
	const struct verify_wish verify = { .fault = fault_note, .owner = &faults };
	struct verify_result verified;
	struct gc_result collected;

	cr_assert_eq(store_verify(&at->store, &verify, &verified), 0);
	cr_assert_eq(faults, 0);
	cr_assert_eq(store_gc(&at->store, &gc, &collected), 0);
	cr_assert_eq(collected.temporaries, 0, "no half file has a name");
	names_check(at, empty);
}

static void pulls_are_killed(bool is_packed)
{
	struct world *world = world_new(is_packed);
	auto_free struct names *all = malloc(sizeof *all), *empty = malloc(sizeof *empty);
	uint32_t call;

	cr_assert_eq(two_push(world), 0);
	names_read(&world->other, empty);
	cr_assert_eq(two_pull(world), 0);
	names_read(&world->other, all);
	store_check(&world->other, empty);
	for (call = 0; call < CALLS_MAX; call++) {
		bool killed = transfer_kill(world, two_pull, call);

		cr_assert_eq(two_pull(world), 0, "the next one works");
		names_check(&world->other, all);
		if (!killed)
			break;
		place_reset(&world->other, empty);
		(void)transfer_kill(world, two_pull, call);
		store_check(&world->other, empty);
	}
	cr_assert_lt(call, CALLS_MAX);
	cr_assert_gt(call, 30);
	world_free(world);
}

Test(transfer_crash, a_pull_that_is_killed_at_any_call_leaves_what_gc_takes)
{
	pulls_are_killed(false);
}

Test(transfer_crash, a_packed_pull_that_is_killed_at_any_call_leaves_what_gc_takes)
{
	pulls_are_killed(true);
}
