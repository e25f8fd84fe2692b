/*
 * Sealing that ends where nobody wants it: killed at every one of its system calls, and on a disk
 * that fills at every size. Afterwards the store is right, and what is left over is gc's.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "backends/store/gc.h"
#include "backends/store/index.h"
#include "backends/store/verify.h"
#include "tests/unit/store_place.h"

#define PLACE "/dev/shm/dsec-store-crash.XXXXXX"

enum { CALLS_MAX = 4000 };

static int fault_note(void *owner, const struct verify_fault *fault)
{
	cr_log_warn("%s is %s: %s", fault->what, fault->how, fault->digest);
	++*(uint64_t *)owner;
	return 0;
}

/* Every blob is what its name says, images have all they need, and of the rest nothing stays. */
static void store_check(const struct place_of *at, uint32_t blobs)
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
	cr_assert_eq(collected.incomplete, 0);
	cr_assert_eq(blobs_count(at), blobs);
}

static void base_make(struct place_of *at, struct sealed *ret)
{
	uint8_t manifest[1][DIGEST_BYTES];
	struct raw raw;

	forty(&raw, 40);
	cr_assert_eq(raw_seal(at, &raw, ret), 0);
	raw_free(&raw);
	memcpy(manifest[0], ret->manifest, DIGEST_BYTES);
	image_make(at, manifest, 1, "base.erofs");
}

/* Half of it is the base's; few files, for each is some calls more. */
static void few(struct raw *raw)
{
	char name[16];

	raw_new(raw);
	for (uint32_t i = 0; i < 6; i++) {
		(void)snprintf(name, sizeof name, "f%02u", i);
		(void)raw_file(raw, name, i < 3 ? 30 + i : 2000 + i, 100 + (30 + i) * 3000);
	}
}

static int other_seal(struct place_of *at, struct sealed *ret)
{
	struct raw raw;
	int r;

	few(&raw);
	r = raw_seal(at, &raw, ret);
	raw_free(&raw);
	return r;
}

static void child_run(struct place_of *at)
{
	struct sealed sealed;
	struct raw raw;

	few(&raw);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		_exit(3);
	(void)raise(SIGSTOP);
	_exit(raw_seal(at, &raw, &sealed) < 0 ? 2 : 0);
}

static int stop_wait(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, __WALL) < 0)
		cr_assert_eq(errno, EINTR);
	return status;
}

/* Killed before its call of that number takes place. False: it had ended. */
static bool seal_kill(struct place_of *at, uint32_t call)
{
	pid_t pid = fork();
	int status;

	cr_assert_geq(pid, 0);
	if (pid == 0)
		child_run(at);
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

Test(store_crash, a_seal_that_is_killed_at_any_call_leaves_a_right_store)
{
	struct place_of at = { .path = PLACE };
	struct sealed base, after, fresh;
	struct place_of other;
	uint32_t call, blobs;

	store_new(&at);
	base_make(&at, &base);
	blobs = blobs_count(&at);
	for (call = 0; call < CALLS_MAX && seal_kill(&at, call); call++)
		store_check(&at, blobs);
	cr_assert_lt(call, CALLS_MAX);
	cr_assert_gt(call, 100);
	store_check(&at, blobs);
	/* And what is sealed now is what it had been without all that. */
	cr_assert_eq(other_seal(&at, &after), 0);
	other = (struct place_of){ .path = PLACE };
	store_new(&other);
	base_make(&other, &base);
	cr_assert_eq(other_seal(&other, &fresh), 0);
	cr_assert_eq(memcmp(after.manifest, fresh.manifest, DIGEST_BYTES), 0);
	store_gone(&other);
	store_gone(&at);
}

Test(store_crash, a_disk_that_fills_is_told_and_nothing_is_left)
{
	struct place_of at = { .path = PLACE };
	uint32_t full = 0;
	int r = -ENOSPC;

	cr_assert_eq(unshare(CLONE_NEWNS), 0);
	cr_assert_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	cr_assert_not_null(mkdtemp(at.path));
	for (uint32_t size_kb = 48; r == -ENOSPC; size_kb += 28) {
		struct sealed sealed;
		char options[32];

		cr_assert_lt(size_kb, 64 << 10);
		(void)snprintf(options, sizeof options, "size=%uk", size_kb);
		cr_assert_eq(mount("none", at.path, "tmpfs", 0, options), 0);
		at.fd = open(at.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		cr_assert_eq(store_open(at.fd, &at.store), 0);
		r = other_seal(&at, &sealed);
		cr_assert(r == 0 || r == -ENOSPC);
		cr_assert_eq(blobs_count(&at) == 0, r < 0);
		full += r < 0;
		store_close(&at.store);
		(void)close(at.fd); /* was only looked at */
		cr_assert_eq(umount2(at.path, 0), 0);
	}
	cr_assert_gt(full, 10);
	cr_assert_eq(rmdir(at.path), 0);
}
