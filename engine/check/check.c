/*
 * Owns the walk over the tables of probes and the answer. Called by main.c and by dsecd-check. A
 * probe that crashes, hangs or leaves something behind costs one line of the answer, never the
 * rest.
 */
#include "engine/check/check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/json.h"
#include "engine/keeper/cgroup_root.h"

enum { ANSWER_BYTES_MAX = 64 << 10 };

struct answer {
	struct json_writer json;
	FILE *to;
	bool is_json;
	uint32_t ok, degraded, missing, required_missing;
};

static const char *const state_names[] = { "ok", "degraded", "missing" };

static void probe_run(const struct check_probe *probe, const struct check_context *context,
		      struct check_result *result);
static void probe_report(struct answer *answer, const struct check_probe *probe,
			 const struct check_result *result);
static int answer_end(struct answer *answer, const char *text);

int check_run(const struct check_options *options, FILE *to)
{
	static const struct check_probe *const tables[] = {
		check_kernel_probes,	check_ring_probes,    check_cgroup_probes,
		check_namespace_probes, check_network_probes, check_mount_probes,
		check_bpf_probes,	check_limit_probes,
	};
	auto_free char *text = malloc(ANSWER_BYTES_MAX);
	struct answer answer = { .to = to, .is_json = options->json };
	struct check_context context = { .options = options };
	struct check_result *result;
	struct utsname host;

	/* Shared, so that a probe's process can tell even when it dies on the way out. */
	result = mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (!text || result == MAP_FAILED) {
		fprintf(stderr, "dsecd: --check: no memory\n");
		return 1;
	}
	/* A dot: no instance's name has one. */
	snprintf(context.cgroup_name, sizeof(context.cgroup_name), "dsec.check.%d", getpid());
	(void)uname(&host); /* cannot fail */
	json_open(&answer.json, text, ANSWER_BYTES_MAX);
	json_object(&answer.json, NULL);
	json_string(&answer.json, "kernel", host.release);
	json_array(&answer.json, "probes");
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		for (const struct check_probe *probe = tables[i]; probe->name; probe++) {
			probe_run(probe, &context, result);
			probe_report(&answer, probe, result);
		}
	}
	json_end(&answer.json);
	(void)munmap(result, sizeof(*result)); /* was mapped above */
	return answer_end(&answer, text);
}

static void result_set(struct check_result *result, enum check_state state, const char *format,
		       va_list arguments)
{
	result->state = state;
	vsnprintf(result->detail, sizeof(result->detail), format, arguments);
}

void check_ok(struct check_result *result, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	result_set(result, CHECK_OK, format, arguments);
	va_end(arguments);
}

void check_degraded(struct check_result *result, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	result_set(result, CHECK_DEGRADED, format, arguments);
	va_end(arguments);
}

void check_missing(struct check_result *result, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	result_set(result, CHECK_MISSING, format, arguments);
	va_end(arguments);
}

void check_failed(struct check_result *result, const char *step)
{
	check_missing(result, "%s: %s", step, strerrordesc_np(errno));
}

/* ---- one probe ---- */

static _Noreturn void probe_child(const struct check_probe *probe,
				  const struct check_context *context, struct check_result *result,
				  int parent)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a valid signal */
	if (getppid() == parent)
		probe->run(context, result);
	_exit(0);
}

/* Waits at most limit_ms for a child, then kills it. Reaps it always. */
static void probe_await(int pid, uint32_t limit_ms, struct check_result *result)
{
	auto_close int pidfd = pidfd_open(pid, 0);
	struct pollfd ended = { .fd = pidfd, .events = POLLIN };
	bool late;
	int status = 0;

	late = pidfd < 0 || poll(&ended, 1, (int)limit_ms) <= 0;
	if (late)
		(void)kill(pid, SIGKILL); /* not reaped yet: the number is its own */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (late && pidfd < 0)
		check_missing(result, "no pidfd to wait for the probe with");
	else if (late)
		check_missing(result, "the probe did not end within %u ms", limit_ms);
	else if (WIFSIGNALED(status))
		check_missing(result, "the probe died by signal %d", WTERMSIG(status));
}

/* What a probe put into its cgroup dies with it, which takes a moment. */
static void cgroup_clean(const char *name)
{
	const struct timespec moment = { .tv_nsec = 2000000 };
	char mount[PATH_MAX];
	auto_close int fd = -1;

	if (cgroup_mount_find(mount) < 0)
		return;
	fd = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; fd >= 0 && i < 500; i++) {
		if (!unlinkat(fd, name, AT_REMOVEDIR) || errno != EBUSY)
			return;
		(void)nanosleep(&moment, NULL); /* shorter is fine */
	}
}

static void probe_run(const struct check_probe *probe, const struct check_context *context,
		      struct check_result *result)
{
	int parent = getpid(), pid;

	check_missing(result, "the probe gave no answer");
	pid = fork();
	if (pid < 0) {
		check_failed(result, "fork");
		return;
	}
	if (pid == 0)
		probe_child(probe, context, result, parent);
	probe_await(pid, probe->limit_ms ? probe->limit_ms : CHECK_LIMIT_MS, result);
	cgroup_clean(context->cgroup_name);
}

/* ---- the answer ---- */

static void probe_count(struct answer *answer, const struct check_probe *probe,
			enum check_state state)
{
	if (state == CHECK_OK)
		answer->ok++;
	else if (state == CHECK_DEGRADED)
		answer->degraded++;
	else
		answer->missing++;
	if (state == CHECK_MISSING && probe->required)
		answer->required_missing++;
}

static void probe_report(struct answer *answer, const struct check_probe *probe,
			 const struct check_result *result)
{
	const char *state = state_names[result->state];
	bool is_ok = result->state == CHECK_OK;
	bool is_fatal = result->state == CHECK_MISSING && probe->required;

	probe_count(answer, probe, result->state);
	if (!answer->is_json) {
		fprintf(answer->to, "%-9s %-17s %s", state, probe->name, result->detail);
		if (!is_ok)
			fprintf(answer->to, " | %s%s | %s", is_fatal ? "required: " : "",
				probe->degrades, probe->remedy);
		fputc('\n', answer->to);
		return;
	}
	json_object(&answer->json, NULL);
	json_string(&answer->json, "name", probe->name);
	json_string(&answer->json, "state", state);
	json_bool(&answer->json, "required", probe->required);
	json_string(&answer->json, "detail", result->detail);
	if (!is_ok) {
		json_string(&answer->json, "degrades", probe->degrades);
		json_string(&answer->json, "remedy", probe->remedy);
	}
	json_end(&answer->json);
}

static int answer_end(struct answer *answer, const char *text)
{
	int r;

	if (answer->is_json) {
		json_unsigned(&answer->json, "ok", answer->ok);
		json_unsigned(&answer->json, "degraded", answer->degraded);
		json_unsigned(&answer->json, "missing", answer->missing);
		json_unsigned(&answer->json, "required_missing", answer->required_missing);
		json_end(&answer->json);
		r = json_close(&answer->json);
		if (r < 0) {
			fprintf(stderr, "dsecd: --check: answer: %s\n", strerrordesc_np(-r));
			return 1;
		}
		fprintf(answer->to, "%s\n", text);
	} else {
		fprintf(answer->to, "%u ok, %u degraded, %u missing, of which %u required\n",
			answer->ok, answer->degraded, answer->missing, answer->required_missing);
	}
	if (fflush(answer->to) || ferror(answer->to)) {
		fprintf(stderr, "dsecd: --check: %s\n", strerrordesc_np(errno));
		return 1;
	}
	return answer->required_missing ? 1 : 0;
}
