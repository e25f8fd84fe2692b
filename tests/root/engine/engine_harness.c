/*
 * Owns suites: starts an engine, runs claims on it, ends it and looks for what is left. Called by
 * the tests' main(). Must hold: whatever a claim did, no process of the engine outlives the suite,
 * and what had to be ended by force is a failure.
 */
#include "tests/root/engine/engine_harness.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_image.h"
#include "tests/root/engine/engine_residue.h"

enum {
	START_MS = 60000,
	END_MS = 30000,
	ARGUMENTS_MAX = 32,
	EXIT_REFUSED = 2,
	ARENA_BYTES = 8 << 20
};

/* The state beside the suites: failures of the claim that runs, its name, engines so far. */
static unsigned failures;
static const char *claim_name = "";
static unsigned engines_started;

bool expect_at(bool holds, const char *file, int line, const char *what)
{
	const char *name = strrchr(file, '/');

	if (!holds) {
		failures++;
		printf("    %s:%d: failed: %s\n", name ? name + 1 : file, line, what);
	}
	return holds;
}

void note(const char *format, ...)
{
	va_list arguments;

	printf("    ");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
}

uint64_t now_ms(void)
{
	return (uint64_t)clock_ms();
}

void pause_ms(unsigned ms)
{
	const struct timespec pause = { ms / 1000, (long)(ms % 1000) * 1000000 };

	(void)nanosleep(&pause, NULL); /* shorter is fine */
}

/* ---- one engine ---- */

static void names_make(struct engine *e, const struct engine_options *options)
{
	const char *root = access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0 ?
				   "/sys/fs/cgroup/unified" :
				   "/sys/fs/cgroup";

	*e = (struct engine){ .options = *options, .lifeline = -1 };
	if (options->instance)
		(void)snprintf(e->instance, sizeof e->instance, "%s", options->instance);
	else
		(void)snprintf(e->instance, sizeof e->instance, "test-%d-%u", getpid(),
			       engines_started++);
	(void)snprintf(e->socket, sizeof e->socket, "%s/%s.sock", image_folder(), e->instance);
	(void)snprintf(e->log, sizeof e->log, "%s/%s.log", image_folder(), e->instance);
	(void)snprintf(e->cgroup, sizeof e->cgroup, "%s/dsec-%s", root, e->instance);
}

static bool bpf_refuse(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_bpf, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog filter = { sizeof code / sizeof *code, code };

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* The child: becomes dsecd, and goes when we do. */
static _Noreturn void engine_become(const struct engine *e, int ready_fd, int lifeline_fd)
{
	const char *argv[ARGUMENTS_MAX + 16];
	char ready[16], lifeline[16];
	unsigned count = 0;
	int log = open(e->log, O_CREAT | O_WRONLY | O_APPEND, 0600);

	(void)snprintf(ready, sizeof ready, "%d", ready_fd);
	(void)snprintf(lifeline, sizeof lifeline, "%d", lifeline_fd);
	argv[count++] = e->options.fault ? DSECD_FAULTS_PATH : DSECD_PATH;
	argv[count++] = "--instance";
	argv[count++] = e->instance;
	argv[count++] = "--socket";
	argv[count++] = e->socket;
	argv[count++] = "--images";
	argv[count++] = engine_images();
	argv[count++] = "--state";
	argv[count++] = engine_state();
	argv[count++] = "--ready-fd";
	argv[count++] = ready;
	if (lifeline_fd >= 0) {
		argv[count++] = "--lifeline";
		argv[count++] = lifeline;
	}
	if (!e->options.has_default_network) {
		argv[count++] = "--network";
		argv[count++] = "none";
	}
	for (unsigned i = 0; e->options.arguments && e->options.arguments[i]; i++)
		argv[count++] = e->options.arguments[i];
	argv[count] = NULL;
	if (e->options.fault)
		(void)setenv("DSEC_FAULT", e->options.fault, 1); /* seen by the claim when not */
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	(void)signal(SIGALRM, SIG_DFL);
	if (log < 0 || dup2(log, 2) < 0 || (e->options.has_no_bpf && !bpf_refuse()))
		_exit(126);
	(void)fcntl(ready_fd, F_SETFD, 0); /* valid, as the next */
	if (lifeline_fd >= 0)
		(void)fcntl(lifeline_fd, F_SETFD, 0);
	execv(argv[0], (char *const *)(uintptr_t)argv);
	_exit(127);
}

static bool engine_fork(struct engine *e)
{
	int ready[2], lifeline[2] = { -1, -1 };
	char text[8] = "";
	ssize_t bytes;

	if (pipe2(ready, O_CLOEXEC) < 0 ||
	    (e->options.has_lifeline && pipe2(lifeline, O_CLOEXEC) < 0))
		return expect(!"pipe");
	fflush(stdout);
	e->keeper = fork();
	if (e->keeper == 0)
		engine_become(e, ready[1], lifeline[0]);
	(void)close(ready[1]); /* the engine's */
	cleanup_close(&lifeline[0]);
	e->lifeline = lifeline[1];
	bytes = read(ready[0], text, sizeof text - 1);
	(void)close(ready[0]); /* was read */
	return bytes == 6;
}

static void log_show(const struct engine *e)
{
	char line[512];
	FILE *file = fopen(e->log, "re");

	while (file && fgets(line, sizeof line, file))
		printf("    | %s", line);
	if (file)
		(void)fclose(file); /* was only read */
}

bool engine_log_has(const struct engine *e, const char *text)
{
	char line[1024];
	FILE *file = fopen(e->log, "re");
	bool has = false;

	while (file && !has && fgets(line, sizeof line, file))
		has = strstr(line, text);
	if (file)
		(void)fclose(file); /* was only read */
	return has;
}

/* A machine has room for a few instances: others may hold it for a while. */
static bool engine_try(struct engine *e)
{
	int status;

	if (engine_fork(e))
		return true;
	if (waitpid(e->keeper, &status, 0) != e->keeper)
		return expect(!"waitpid");
	e->keeper = 0;
	cleanup_close(&e->lifeline);
	e->lifeline = -1;
	return !WIFEXITED(status) || WEXITSTATUS(status) != EXIT_REFUSED ||
	       !engine_log_has(e, "uid ranges are taken");
}

bool engine_start(struct engine *e, const struct engine_options *options)
{
	names_make(e, options);
	if (!until(START_MS, engine_try(e)) || !e->keeper) {
		expect(!"the engine starts");
		log_show(e);
		return false;
	}
	e->first_pid = engine_pid(e);
	e->d = engine_connect(e);
	engine_baseline(e);
	return e->d != NULL;
}

struct dsec *engine_connect(struct engine *e)
{
	struct dsec_open_opts opts = { .size = sizeof opts,
				       .address = e->socket,
				       .arena_bytes = ARENA_BYTES,
				       .tenant = e->options.tenant,
				       .reconnect_ms = UINT32_MAX }; /* claims see ends */
	struct dsec *d;
	int r = dsec_open(&opts, &d);

	if (r == 0)
		return d;
	expect(!"a client can connect");
	note("%s", dsec_error(NULL, r));
	return NULL;
}

int engine_wait(struct engine *e, unsigned ms)
{
	int status = -1;

	if (!until(ms, waitpid(e->keeper, &status, WNOHANG) == e->keeper)) {
		(void)kill(e->keeper, SIGKILL); /* not reaped: its own */
		(void)waitpid(e->keeper, NULL, 0);
		status = -1;
	}
	e->keeper = 0;
	cleanup_close(&e->lifeline);
	e->lifeline = -1;
	return status;
}

void engine_end(struct engine *e)
{
	unsigned before = failures;
	int status;

	dsec_close(e->d);
	e->d = NULL;
	if (!e->keeper)
		return;
	(void)kill(e->keeper, SIGTERM); /* not reaped: its own */
	status = engine_wait(e, END_MS);
	expect(status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	expect(engine_log_has(e, "stopped, nothing is left"));
	engine_expect_gone(e);
	if (failures > before)
		log_show(e);
}

/* ---- suites ---- */

static void claim_late(int signal)
{
	static const char text[] = "    the claim takes too long: ";

	(void)signal;
	(void)!write(1, text, sizeof text - 1);
	(void)!write(1, claim_name, strlen(claim_name));
	(void)!write(1, "\n", 1);
	_exit(1); /* the engine follows */
}

/* The next claim gets a connection that works. */
static void claim_settle(struct engine *e)
{
	if (holdings_now(e->d).size == 0) {
		expect(e->options.is_hurt && "the connection lives");
		dsec_close(e->d);
		e->d = engine_connect(e);
	}
	if (e->d)
		engine_expect_idle(e);
}

static bool claim_run(struct engine *e, const struct suite *suite, const struct claim *claim)
{
	uint64_t begun_ms = now_ms();

	failures = 0;
	claim_name = claim->name;
	printf("%s: %s\n", suite->name, claim->name);
	(void)alarm((unsigned)longer(CLAIM_SECONDS_MAX));
	claim->run(e);
	if (e->d && e->keeper)
		claim_settle(e);
	(void)alarm(0);
	printf("  %s, %u ms\n", failures ? "FAILED" : "ok", (unsigned)(now_ms() - begun_ms));
	return failures == 0;
}

static bool is_wanted(const struct suite *suite, const struct claim *claim, const char *wanted)
{
	return !wanted || strstr(claim->name, wanted) || strstr(suite->name, wanted);
}

struct tally {
	unsigned tested, failed;
};

static void suite_run(const struct suite *suite, const char *wanted, struct tally *tally)
{
	auto_free struct engine *e = calloc(1, sizeof *e);
	unsigned claims = 0, fds = process_fd_count(getpid());
	bool broken = false;

	for (unsigned i = 0; i < suite->claim_count; i++)
		claims += is_wanted(suite, &suite->claims[i], wanted);
	if (!claims)
		return;
	failures = 0;
	if (!engine_start(e, &suite->options)) {
		tally->failed++;
		return;
	}
	for (unsigned i = 0; i < suite->claim_count && !broken; i++) {
		if (!is_wanted(suite, &suite->claims[i], wanted))
			continue;
		tally->tested++;
		if (claim_run(e, suite, &suite->claims[i]))
			continue;
		tally->failed++;
		broken = !e->d || !e->keeper;
		log_show(e);
	}
	failures = 0;
	printf("%s: ends and leaves nothing\n", suite->name);
	(void)alarm((unsigned)longer(CLAIM_SECONDS_MAX));
	engine_end(e);
	(void)alarm(0);
	expect(process_fd_count(getpid()) == fds);
	tally->tested++;
	tally->failed += failures > 0;
	printf("  %s\n", failures ? "FAILED" : "ok");
}

int suites_main(int argc, char **argv, const struct suite *suites, unsigned count)
{
	struct tally tally = { 0 };

	setvbuf(stdout, NULL, _IOLBF, 0);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGALRM, claim_late);
	/* What a keeper leaves comes to us, and shows. */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || !image_build())
		return 1;
	for (unsigned i = 0; i < count; i++)
		suite_run(&suites[i], argc > 1 ? argv[1] : NULL, &tally);
	image_remove();
	printf("Tested: %u\n", tally.tested);
	if (tally.failed)
		printf("%u failed\n", tally.failed);
	return tally.failed ? 1 : 0;
}

const char *engine_images(void)
{
	return image_folder();
}

const char *engine_state(void)
{
	static char path[128];

	(void)snprintf(path, sizeof path, "%s/.state", image_folder());
	return path;
}
