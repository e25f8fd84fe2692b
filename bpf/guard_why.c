/*
 * Says why something could not be loaded, and what would help. Called by guard.c. Must hold: what
 * does not fit is cut, never written past.
 */
#include "bpf/guard_why.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void guard_why_add(struct guard_why *why, const char *format, ...)
{
	va_list arguments;
	int length;

	if (why->used >= why->bytes)
		return;
	va_start(arguments, format);
	length = vsnprintf(why->text + why->used, why->bytes - why->used, format, arguments);
	va_end(arguments);
	why->used += (size_t)length;
}

/* The verifier's last word: the line before its statistics. "" when it was not asked. */
static const char *log_last_line(char *log)
{
	char *line;

	for (;;) {
		size_t length = strlen(log);

		while (length && log[length - 1] == '\n')
			log[--length] = '\0';
		line = strrchr(log, '\n');
		if (!line)
			return strncmp(log, "processed ", 10) ? log : "";
		if (strncmp(line + 1, "processed ", 10))
			return line + 1;
		*line = '\0';
	}
}

static const char *load_remedy(int r)
{
	if (r == -EPERM || r == -EACCES)
		return "run as root with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, without kernel "
		       "lockdown `confidentiality`";
	if (r == -ENOMEM)
		return "raise the memory limit of the engine's cgroup";
	return "use a kernel of at least 6.12 with CONFIG_BPF_SYSCALL, CONFIG_CGROUP_BPF and "
	       "CONFIG_DEBUG_INFO_BTF";
}

void guard_why_load(struct guard_why *why, const char *what, int r, char *log)
{
	const char *line = log_last_line(log);

	guard_why_add(why, "%s (%s%s%s): %s\n", what, strerror(-r), *line ? ": " : "", line,
		      load_remedy(r));
}
