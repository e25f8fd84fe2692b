/*
 * dsec-store as the engine starts it: what it is asked, what it tells and leaves, and what it may
 * do while it does it.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "tests/root/image/store_run.h"

enum { WAIT_MS = 20000 };

/* Nobody holds the lock but a test that wants to. */
static void store_two(struct place_of *at)
{
	store_new(at);
	image_add(at, 40, "one.erofs");
	image_add(at, 20, "two.erofs");
	store_close(&at->store);
}

/* ---- what it does ---- */

Test(store_program, compose_leaves_an_image_of_its_parts)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	const char *const words[] = { "compose", "0", "both", "one", "two", NULL };
	struct place_of at = { 0 };
	struct import_frame frame;
	struct run run = { 0 };

	store_two(&at);
	run_start(&run, &at, words);
	cr_assert_eq(run_end(&run, &frame), 0, "%s %s", frame.step, frame.reason);
	cr_assert_eq(frame.kind, IMPORT_DONE);
	auto_close int fd = openat(run.scratch_fd, IMPORT_RESULT, O_RDONLY);
	cr_assert_eq(image_record_read(fd, record), 0);
	cr_assert_eq(record->manifest_count, 2);
	cr_assert_str_eq(record->digest, frame.digest);
	run_gone(&run);
	store_gone(&at);
}

Test(store_program, compose_names_the_part_that_it_cannot_use)
{
	static const struct {
		const char *part, *says;
	} cases[] = { { "none", "no such image" }, { "plain", "not of the store" } };
	struct place_of at = { 0 };

	store_two(&at);
	(void)close(openat(at.fd, "plain.erofs", O_WRONLY | O_CREAT, 0600));
	for (unsigned i = 0; i < 2; i++) {
		const char *const words[] = { "compose", "0", "x", "one", cases[i].part, NULL };
		struct import_frame frame;
		struct run run = { 0 };

		run_start(&run, &at, words);
		cr_assert_eq(run_end(&run, &frame), 1);
		cr_assert_eq(frame.kind, IMPORT_FAILED);
		cr_assert_str_eq(frame.name, cases[i].part);
		cr_assert_not_null(strstr(frame.reason, cases[i].says), "%s", frame.reason);
		cr_assert_eq(faccessat(run.scratch_fd, IMPORT_RESULT, F_OK, 0), -1);
		run_gone(&run);
	}
	store_gone(&at);
}

Test(store_program, gc_reports_what_it_took_and_is_refused_while_others_work)
{
	const char *const dry[] = { "gc", "2", "", NULL }, *const gc[] = { "gc", "0", "", NULL };
	struct place_of at = { 0 };
	struct import_frame frame;
	char text[TEXT_BYTES];
	uint32_t before;
	struct run run = { 0 };

	store_two(&at);
	before = blobs_count(&at);
	cr_assert_eq(unlinkat(at.fd, "two.erofs", 0), 0);
	run_start(&run, &at, dry);
	cr_assert_eq(run_end(&run, &frame), 0, "%s", frame.reason);
	left_read(&run, STORE_REPORT, text);
	cr_assert_not_null(strstr(text, "\"dry_run\":true"), "%s", text);
	cr_assert_eq(blobs_count(&at), before);
	run_gone(&run);
	auto_close int lock = openat(at.fd, ".lock", O_RDWR | O_CLOEXEC);
	cr_assert_eq(flock(lock, LOCK_SH), 0);
	run_start(&run, &at, gc);
	cr_assert_eq(run_end(&run, &frame), 1);
	cr_assert_eq(frame.error, EBUSY);
	run_gone(&run);
	cr_assert_eq(flock(lock, LOCK_UN), 0);
	run_start(&run, &at, gc);
	cr_assert_eq(run_end(&run, &frame), 0, "%s", frame.reason);
	left_read(&run, STORE_REPORT, text);
	cr_assert_not_null(strstr(text, "\"deleted\":5"), "%s", text);
	cr_assert_eq(blobs_count(&at), before - 5);
	run_gone(&run);
	store_gone(&at);
}

/* ---- killed ---- */

Test(store_program, whatever_is_killed_at_any_moment_leaves_a_right_store)
{
	static const char *const verbs[][6] = { { "compose", "0", "both", "one", "one", NULL },
						{ "verify", "0", "", NULL },
						{ "gc", "0", "", NULL } };
	enum { STRIDE = 11, STOPS_MAX = 40000 }; /* odd: before calls, and behind them */
	struct place_of at = { .path = "/dev/shm/dsec-store-killed.XXXXXX" };
	uint32_t all, kept, stop;

	store_new(&at);
	image_add(&at, 40, "one.erofs");
	kept = blobs_count(&at);
	store_close(&at.store);
	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
		bool killed = true;

		for (stop = 1; killed; stop += STRIDE) {
			struct run run = { .traced = true };

			cr_assert_lt(stop, STOPS_MAX);
			cr_assert_eq(store_open(at.fd, &at.store), 0);
			image_add(&at, 20, "two.erofs"); /* gc has something to do each time */
			store_close(&at.store);
			cr_assert_eq(unlinkat(at.fd, "two.erofs", 0), 0);
			all = blobs_count(&at);
			run_start(&run, &at, verbs[i]);
			killed = run_kill(&run, stop);
			all_check(&at, &run);
			cr_assert_leq(blobs_count(&at), all);
			cr_assert_geq(blobs_count(&at), i == 2 ? kept : all);
			run_gone(&run);
		}
		cr_assert_gt(stop, 20 * STRIDE, "%s", verbs[i][0]);
	}
	cr_assert_eq(blobs_count(&at), kept, "the last gc took the rest");
	cr_assert_eq(store_open(at.fd, &at.store), 0);
	store_gone(&at);
}

Test(store_program, verify_fails_with_a_report_that_names_the_image)
{
	const char *const words[] = { "verify", "0", "", NULL };
	struct store_manifest manifest;
	struct place_of at = { 0 };
	struct import_frame frame;
	char text[TEXT_BYTES], path[96] = "blobs/sha256/";
	struct run run = { 0 };

	store_two(&at);
	run_start(&run, &at, words);
	cr_assert_eq(run_end(&run, &frame), 0, "%s", frame.reason);
	left_read(&run, STORE_REPORT, text);
	cr_assert_not_null(strstr(text, "\"faults\":[],\"images\":2"), "%s", text);
	run_gone(&run);
	auto_free struct image_record *record = calloc(1, sizeof *record);
	auto_close int image = openat(at.fd, "two.erofs", O_RDONLY);
	cr_assert_eq(image_record_read(image, record), 0);
	cr_assert_eq(store_open(at.fd, &at.store), 0);
	cr_assert_eq(store_manifest_load(&at.store, record->manifests[0], &manifest), 0);
	digest_hex(manifest.config.digest, path + strlen(path));
	store_manifest_done(&manifest);
	store_close(&at.store);
	cr_assert_eq(unlinkat(at.fd, path, 0), 0);
	run_start(&run, &at, words);
	cr_assert_eq(run_end(&run, &frame), 1);
	cr_assert_eq(frame.error, EBADMSG);
	left_read(&run, STORE_REPORT, text);
	cr_assert_not_null(strstr(text, "\"what\":\"config\",\"how\":\"missing\""), "%s", text);
	run_gone(&run);
	store_gone(&at);
}

/* ---- what it may ---- */

static void status_read(pid_t pid, char ret[TEXT_BYTES])
{
	char path[64];
	ssize_t n;

	(void)snprintf(path, sizeof path, "/proc/%d/status", pid);
	auto_close int fd = open(path, O_RDONLY);
	n = fd < 0 ? -1 : read(fd, ret, TEXT_BYTES - 1);
	cr_assert_geq(n, 0);
	ret[n] = 0;
}

static void place_of_process(pid_t pid, const char *what, char ret[64])
{
	char path[64];
	ssize_t n;

	(void)snprintf(path, sizeof path, "/proc/%d/%s", pid, what);
	n = readlink(path, ret, 63);
	cr_assert_geq(n, 0, "%s", what);
	ret[n] = 0;
}

/* It waits for the lock that gc has: so long it can be looked at. */
Test(store_program, is_confined_before_it_reads_anything)
{
	const char *const words[] = { "verify", "0", "", NULL };
	const struct timespec pause = { .tv_nsec = 2000000 };
	struct place_of at = { 0 };
	struct import_frame frame;
	char text[TEXT_BYTES] = "", its[64], ours[64];
	struct stat root, scratch;
	struct run run = { 0 };

	store_two(&at);
	auto_close int lock = openat(at.fd, ".lock", O_RDWR | O_CLOEXEC);
	cr_assert_eq(flock(lock, LOCK_EX), 0);
	run_start(&run, &at, words);
	for (unsigned i = 0; i < WAIT_MS / 2 && !strstr(text, "Seccomp:\t2"); i++) {
		(void)nanosleep(&pause, NULL);
		status_read(run.pid, text);
	}
	cr_assert_not_null(strstr(text, "Seccomp:\t2"), "%s", text);
	cr_assert_not_null(strstr(text, "NoNewPrivs:\t1"));
	/* DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, LEASE */
	cr_assert_not_null(strstr(text, "CapEff:\t000000001000000e"), "%s", text);
	cr_assert_not_null(strstr(text, "CapBnd:\t000000001000000e"), "%s", text);
	place_of_process(run.pid, "ns/net", its);
	place_of_process(getpid(), "ns/net", ours);
	cr_assert_str_neq(its, ours);
	(void)snprintf(its, sizeof its, "/proc/%d/root", run.pid);
	cr_assert_eq(stat(its, &root), 0);
	cr_assert_eq(fstat(run.scratch_fd, &scratch), 0);
	cr_assert_eq(root.st_ino, scratch.st_ino, "its root is its scratch");
	cr_assert_eq(root.st_dev, scratch.st_dev);
	cr_assert_eq(flock(lock, LOCK_UN), 0);
	cr_assert_eq(run_end(&run, &frame), 0, "%s", frame.reason);
	run_gone(&run);
	store_gone(&at);
}
