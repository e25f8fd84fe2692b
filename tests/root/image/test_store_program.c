/*
 * dsec-store as the engine starts it: what it is asked, what it tells and leaves, and what it may
 * do while it does it.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "backends/store/verify.h"
#include "tests/unit/store_place.h"

enum { WAIT_MS = 20000, TEXT_BYTES = 16 << 10 };

struct run {
	pid_t pid;
	int scratch_fd, status_fd;
	char scratch[64];
	bool traced; /* it stops where its program begins */
};

static void run_start(struct run *run, const struct place_of *at, const char *const *words)
{
	const char *argv[16] = { "dsec-store", words[0], "1000000000", "0" };
	int ends[2];

	for (unsigned i = 1; words[i]; i++)
		argv[i + 3] = words[i];
	(void)snprintf(run->scratch, sizeof run->scratch, "/var/tmp/dsec-store-run.XXXXXX");
	cr_assert_not_null(mkdtemp(run->scratch));
	run->scratch_fd = open(run->scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	run->pid = fork();
	cr_assert_geq(run->pid, 0);
	if (run->pid == 0) {
		int high = fcntl(run->scratch_fd, F_DUPFD, 20), images = fcntl(at->fd, F_DUPFD, 20);

		/* It does not outlive a test that fails. */
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || dup2(ends[1], IMAGE_FD_STATUS) < 0 ||
		    dup2(high, IMAGE_FD_SCRATCH) < 0 || dup2(images, IMAGE_FD_IMAGES) < 0)
			_exit(126);
		(void)close(high); /* it is at its place */
		(void)close(images);
		if (run->traced && ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(126);
		(void)execv(getenv("DSEC_STORE"), (char *const *)argv);
		_exit(127);
	}
	(void)close(ends[1]); /* so that the pipe ends with it */
	run->status_fd = ends[0];
}

/* The last frame; its exit status. */
static int run_end(struct run *run, struct import_frame *ret)
{
	struct import_frame frame;
	int status;
	ssize_t n;

	memset(ret, 0, sizeof *ret);
	while ((n = read(run->status_fd, &frame, sizeof frame)) > 0)
		cr_assert_eq(import_frame_read(&frame, (size_t)n, ret), 0);
	(void)close(run->status_fd);
	cr_assert_eq(waitpid(run->pid, &status, 0), run->pid);
	cr_assert(WIFEXITED(status), "killed by signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

static void run_gone(struct run *run)
{
	folder_empty(run->scratch_fd);
	cr_assert_eq(rmdir(run->scratch), 0);
}

/* What a job left there. */
static void left_read(const struct run *run, const char *name, char ret[TEXT_BYTES])
{
	auto_close int fd = openat(run->scratch_fd, name, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, TEXT_BYTES - 1);

	cr_assert_geq(n, 0, "%s", name);
	ret[n] = 0;
}

static void image_add(struct place_of *at, uint32_t from, const char *path)
{
	uint8_t manifest[1][DIGEST_BYTES];
	struct sealed sealed;
	struct raw raw;

	forty(&raw, from);
	cr_assert_eq(raw_seal(at, &raw, &sealed), 0);
	raw_free(&raw);
	memcpy(manifest[0], sealed.manifest, DIGEST_BYTES);
	image_make(at, manifest, 1, path);
}

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

/* Before or behind its calls, at the stop of that number. False: it had ended by itself. */
static bool run_kill(struct run *run, uint32_t stop)
{
	int status;

	cr_assert_eq(waitpid(run->pid, &status, 0), run->pid);
	cr_assert(WIFSTOPPED(status));
	cr_assert_eq(ptrace(PTRACE_SETOPTIONS, run->pid, NULL, PTRACE_O_EXITKILL), 0);
	for (uint32_t i = 0; i < stop && WIFSTOPPED(status); i++) {
		cr_assert_eq(ptrace(PTRACE_SYSCALL, run->pid, NULL, NULL), 0);
		cr_assert_eq(waitpid(run->pid, &status, __WALL), run->pid);
	}
	(void)close(run->status_fd); /* what it told counts no more */
	if (!WIFSTOPPED(status)) {
		cr_assert(WIFEXITED(status));
		cr_assert_eq(WEXITSTATUS(status), 0);
		return false;
	}
	cr_assert_eq(kill(run->pid, SIGKILL), 0);
	cr_assert_eq(waitpid(run->pid, &status, __WALL), run->pid);
	cr_assert(WIFSIGNALED(status));
	return true;
}

static int fault_count(void *owner, const struct verify_fault *fault)
{
	cr_log_warn("%s is %s: %s", fault->what, fault->how, fault->digest);
	++*(uint64_t *)owner;
	return 0;
}

/* What has a name is whole, wherever it is. */
static void all_check(struct place_of *at, const struct run *run)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	auto_close int result = openat(run->scratch_fd, IMPORT_RESULT, O_RDONLY | O_CLOEXEC);
	uint64_t faults = 0;
	const struct verify_wish wish = { .fault = fault_count, .owner = &faults };
	struct verify_result verified;

	cr_assert(result < 0 || image_record_read(result, record) == 0);
	cr_assert_eq(store_open(at->fd, &at->store), 0);
	cr_assert_eq(store_verify(&at->store, &wish, &verified), 0);
	cr_assert_eq(faults, 0);
	store_close(&at->store);
}

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
