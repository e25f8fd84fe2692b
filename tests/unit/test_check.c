/* Tests of check.c over tables of the test's own: probes that crash, hang or say nothing. */
#include "engine/check/check.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "engine/check/child.h"

static void ok_run(const struct check_context *context, struct check_result *result)
{
	(void)context;
	check_ok(result, "seen \"%d\"", 7);
}

static void degraded_run(const struct check_context *context, struct check_result *result)
{
	(void)context;
	check_degraded(result, "less");
}

static void crash_run(const struct check_context *context, struct check_result *result)
{
	(void)context;
	check_ok(result, "said before the crash");
	(void)raise(SIGKILL);
}

/* Hangs, with a child that must not outlive it. */
static void hang_run(const struct check_context *context, struct check_result *result)
{
	(void)context;
	(void)result;
	(void)probe_child_start(0, -1); /* both go on below */
	for (;;)
		pause();
}

static void silent_run(const struct check_context *context, struct check_result *result)
{
	(void)context;
	(void)result;
}

#define NONE(table) const struct check_probe table[] = { { 0 } }

const struct check_probe check_kernel_probes[] = {
	{ "first", true, 0, ok_run, "all", "none" },
	{ "less", true, 0, degraded_run, "some", "more" },
	{ "crash", false, 0, crash_run, "nothing", "none" },
	{ "hang", false, 50, hang_run, "time", "none" },
	{ "silent", false, 0, silent_run, "words", "none" },
	{ 0 },
};
NONE(check_ring_probes);
NONE(check_cgroup_probes);
NONE(check_namespace_probes);
NONE(check_network_probes);
NONE(check_mount_probes);
NONE(check_bpf_probes);
const struct check_probe check_limit_probes[] = {
	{ "last", true, 0, ok_run, "all", "none" },
	{ 0 },
};

static char *answer(bool json, int *ret_status)
{
	const struct check_options options = { .json = json };
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);

	*ret_status = check_run(&options, to);
	fclose(to);
	return text;
}

Test(check, probe_that_crashes_hangs_or_says_nothing_costs_one_line)
{
	static const char *const wanted[] = {
		"ok        first             seen \"7\"\n",
		"degraded  less              less | some | more\n",
		"missing   crash             the probe died by signal 9 | nothing | none\n",
		"missing   hang              the probe did not end within 50 ms | time | none\n",
		"missing   silent            the probe gave no answer | words | none\n",
		"ok        last              seen \"7\"\n",
		"2 ok, 1 degraded, 3 missing, of which 0 required\n",
	};
	int status;
	char *text = answer(false, &status), *at = text;

	cr_assert_eq(status, 0, "nothing required is missing");
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		cr_assert_eq(strncmp(at, wanted[i], strlen(wanted[i])), 0, "%s: %s", wanted[i], at);
		at += strlen(wanted[i]);
	}
	cr_assert_eq(*at, '\0');
	free(text);
}

Test(check, child_of_a_probe_that_was_killed_dies_with_it)
{
	int status, ends = 0;

	cr_assert_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	free(answer(false, &status));
	while (waitpid(-1, &status, 0) > 0) {
		cr_assert(WIFSIGNALED(status));
		cr_assert_eq(WTERMSIG(status), SIGKILL);
		ends++;
	}
	cr_assert_eq(ends, 1);
}

Test(check, json_escapes_what_a_probe_says)
{
	int status;
	char *text = answer(true, &status);

	cr_assert_not_null(strstr(text, "\"seen \\\"7\\\"\""), "%s", text);
	cr_assert_not_null(strstr(text, "\"required_missing\":0"), "%s", text);
	cr_assert_eq(text[strlen(text) - 1], '\n');
	free(text);
}
