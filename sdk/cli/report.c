/*
 * Words for numbers, and lines on stderr. Called by every verb. Whatever others chose goes through
 * value_write(). A stderr that takes nothing is nobody's to tell, but main() ends with 125 then.
 */
#include "sdk/cli/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sdk/cli/values.h"

enum { LINE_BYTES_MAX = 1024 };

const char *code_name(uint32_t code)
{
	static const char *const names[] = {
		"ok",	       "refused",  "invalid",	"denied", "absent",  "conflict",
		"unsupported", "deadline", "cancelled", "failed", "unknown", "lost",
	};

	return code < sizeof(names) / sizeof(names[0]) ? names[code] : "failed";
}

const char *blame_name(uint32_t blame)
{
	static const char *const names[] = { "none", "caller", "guest", "platform" };

	return blame < sizeof(names) / sizeof(names[0]) ? names[blame] : "platform";
}

const char *network_name(uint32_t network)
{
	static const char *const names[] = { "none", "none", "private", "egress-unpoliced",
					     "shared" };

	return network < sizeof(names) / sizeof(names[0]) ? names[network] : "other";
}

const char *network_why_name(uint32_t why)
{
	static const char *const names[] = { "asked",  "default",     "operator",
					     "policy", "no-programs", "no-abstract" };

	return why < sizeof(names) / sizeof(names[0]) ? names[why] : "other";
}

const char *network_scope_name(uint32_t scope)
{
	static const char *const names[] = { "sandbox", "job", "tenant", "node" };

	return scope < sizeof(names) / sizeof(names[0]) ? names[scope] : "other";
}

const char *network_lack(uint32_t why)
{
	if (why == DSEC_NETWORK_WHY_NO_PROGRAMS)
		return "this host does not load the programs that shared needs";
	return why == DSEC_NETWORK_WHY_NO_ABSTRACT ?
		       "nothing on this host refuses abstract unix names, as shared needs" :
		       NULL;
}

struct dsec_status status_of_error(int r, const char *step, const char *text)
{
	struct dsec_status status = { .code = DSEC_FAILED,
				      .blame = DSEC_BLAME_PLATFORM,
				      .error = -r };

	switch (r) {
	case -EINVAL:
	case -E2BIG:
	case -EFBIG:
	case -EMSGSIZE:
		status.code = DSEC_INVALID;
		status.blame = DSEC_BLAME_CALLER;
		break;
	case -EACCES:
	case -EPERM:
		status.code = DSEC_DENIED;
		status.blame = DSEC_BLAME_CALLER;
		break;
	case -ENOENT:
	case -ECONNREFUSED:
	case -ENOTCONN:
		status.code = DSEC_LOST;
		break;
	case -EPROTO:
		status.code = DSEC_UNSUPPORTED;
		break;
	case -EOPNOTSUPP:
		status.code = DSEC_UNSUPPORTED;
		status.blame = DSEC_BLAME_CALLER;
		break;
	default:
		break;
	}
	(void)snprintf(status.step, sizeof(status.step), "%s", step); /* cut, as below */
	(void)snprintf(status.detail, sizeof(status.detail), "%s", text);
	return status;
}

static bool step_is(const char *step, const char *const names[])
{
	for (size_t at = 0; names[at]; at++) {
		if (!strncmp(step, names[at], strlen(names[at])))
			return true;
	}
	return false;
}

/* By what was not there. */
static const char *absent_hint(const char *step)
{
	static const char *const policies[] = { "policy.", "create.policy", "phase.policy",
						"function.policy", NULL };
	static const char *const images[] = { "image.", "create.image", "function.image", NULL };
	static const char *const sandboxes[] = { "id", "request.subject", NULL };

	if (step_is(step, policies))
		return "dsec policy ls shows policies";
	if (step_is(step, images))
		return "dsec image ls shows images";
	if (!strcmp(step, "request.exec"))
		return "dsec ps --execs ID shows its programs";
	return step_is(step, sandboxes) ? "dsec ps shows sandboxes" : NULL;
}

/* What this host lacks, and not what no engine has, or what was asked of the wrong sandbox. */
static const char *unsupported_hint(const struct dsec_status *status)
{
	static const char *const others[] = { "create.backend",
					      "create.on_",
					      "change.on_",
					      "port.network",
					      "request.op",
					      "connect",
					      "file.",
					      "image.",
					      "import.",
					      "compose.",
					      "push.",
					      "pull.",
					      "pack.",
					      "hotset.",
					      "verify.",
					      "gc.",
					      NULL };

	return step_is(status->step, others) || strstr(status->detail, "dsecd --check") ?
		       NULL :
		       "see dsecd --check; --allow-degraded does without limits this host lacks";
}

/* By what there is too much of: the images' disk is not freed by the end of a sandbox. */
static const char *refused_hint(const struct dsec_status *status)
{
	static const char *const images[] = { "image.", "import.", "compose.",
					      "pull.",	"pack.",   NULL };

	return status->error == ENOSPC && step_is(status->step, images) ?
		       "dsec image rm, then dsec image gc, make room" :
		       "ask again later, or destroy what is not needed (dsec ps, dsec rm)";
}

/* What the user can do about it; NULL: nothing more to say. */
static const char *status_hint(const struct dsec_status *status)
{
	switch (status->code) {
	case DSEC_REFUSED:
		return refused_hint(status);
	case DSEC_UNSUPPORTED:
		return unsupported_hint(status);
	case DSEC_ABSENT:
		return absent_hint(status->step);
	case DSEC_DEADLINE:
		return "--timeout gives more time";
	case DSEC_LOST:
		return "see the engine's log";
	default:
		return NULL;
	}
}

static void text_write(const char *text)
{
	value_write(stderr, (struct dsec_bytes){ text, strlen(text) });
}

void report_status(const char *what, const struct dsec_status *status)
{
	const char *hint = status_hint(status);

	(void)fputs("dsec: ", stderr);
	text_write(what);
	(void)fprintf(stderr, " %s: ", code_name(status->code));
	text_write(status->detail);
	if (status->step[0]) {
		(void)fputs(status->detail[0] ? " at " : "at ", stderr);
		text_write(status->step);
	}
	if (status->error)
		(void)fprintf(stderr, " (%s)", strerror(status->error));
	(void)fprintf(stderr, " [%s]", blame_name(status->blame));
	if (status->retry_after_ms)
		(void)fprintf(stderr, "; try again in %u ms", status->retry_after_ms);
	if (hint)
		(void)fprintf(stderr, "; %s", hint);
	(void)fputc('\n', stderr);
}

void report_error(const char *text)
{
	(void)fputs("dsec: ", stderr);
	text_write(text);
	(void)fputc('\n', stderr);
}

void report_note(const struct options *options, const char *format, ...)
{
	char text[LINE_BYTES_MAX];
	va_list arguments;

	if (options->quiet)
		return;
	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments); /* cut is fine */
	va_end(arguments);
	report_error(text);
}

const char *reason_name(uint32_t reason)
{
	static const char *const names[] = { "running",	     "exit",	     "signal",
					     "timeout",	     "idle-timeout", "oom",
					     "killed",	     "not-started",  "unknown",
					     "output-limit", "phase-over",   "fork-bomb" };

	return reason < sizeof(names) / sizeof(names[0]) ? names[reason] : "unknown";
}

const char *anomaly_name(uint32_t anomaly)
{
	static const char *const names[DSEC_ANOMALIES] = {
		"protected-write", "dangerous-ioctl",	   "port-scan",
		"hunting",	   "outside-ptrace",	   "outside-signal",
		"socket-probing",  "offline-sockets",	   "verify-tamper",
		"storm",	   "dns-tunnel",	   "bytes-per-destination",
		"vcs-direct",	   "proxy-own-repository",
	};

	return anomaly < DSEC_ANOMALIES ? names[anomaly] : "other";
}

const char *hook_name(uint32_t hook)
{
	static const char *const names[] = {
		"other",      "socket",	     "unix-connect", "unix-send",   "open",	"create",
		"remove",     "rename",	     "link",	     "truncate",    "metadata", "stat",
		"execute",    "mount",	     "ioctl",	     "ptrace",	    "signal",	"bpf",
		"perf",	      "userfaultfd", "keyctl",	     "userns",	    "io-uring", "scheduler",
		"core-sched", "connect",     "bind",	     "send",	    "dns",	"tls",
		"bytecode",   "fetch",	     "mount-call",   "ioctl-other",
	};

	return hook < sizeof(names) / sizeof(names[0]) ? names[hook] : "other";
}

const char *rule_name(uint32_t rule)
{
	static const char *const names[] = {
		"network-none",	    "abstract",	 "platform",   "outside",
		"metadata-address", "neighbour", "egress",     "dns",
		"egress-cap",	    "sockets",	 "file-storm",
	};
	const uint32_t own = rule - RULES_OWN; /* wraps round for those of a policy */

	return own < sizeof(names) / sizeof(names[0]) ? names[own] : NULL;
}

void integrity_text(uint32_t tainted, char ret_text[INTEGRITY_TEXT_BYTES])
{
	const char *between = "tainted[";
	size_t used = 0;

	(void)snprintf(ret_text, INTEGRITY_TEXT_BYTES, "clean"); /* fits */
	for (uint32_t i = 0; i < 32 && used < INTEGRITY_TEXT_BYTES; i++) {
		if (!(tainted & 1u << i))
			continue;
		used += (size_t)snprintf(ret_text + used, INTEGRITY_TEXT_BYTES - used, "%s%s",
					 between, anomaly_name(i));
		between = ", ";
	}
	if (tainted && used < INTEGRITY_TEXT_BYTES)
		(void)snprintf(ret_text + used, INTEGRITY_TEXT_BYTES - used, "]");
}
