/* What is said of a call: each verdict, and which one wins where several would do. */
#include <criterion/criterion.h>
#include <signal.h>

#include "dsec/ring.h"
#include "engine/function/verdict.h"

enum { EXIT_THREE = 3 << 8, LIMIT_US = 1000 };

static struct call_facts ran(int status)
{
	return (struct call_facts){ .started = true, .status = status, .cpu_us = 10 };
}

static void is(const struct call_facts *facts, uint32_t verdict, uint32_t reason)
{
	struct verdict v = verdict_of(facts);

	cr_expect_eq(v.verdict, verdict, "verdict %u", v.verdict);
	cr_expect_eq(v.reason, reason, "reason %u", v.reason);
}

Test(verdict, status_0_is_ok_and_all_else_is_re)
{
	struct call_facts well = ran(0), three = ran(EXIT_THREE), crash = ran(SIGSEGV);

	is(&well, DSEC_VERDICT_OK, DSEC_EXIT);
	is(&three, DSEC_VERDICT_RE, DSEC_EXIT);
	cr_expect_eq(verdict_of(&three).exit_code, 3);
	is(&crash, DSEC_VERDICT_RE, DSEC_SIGNAL);
	cr_expect_eq(verdict_of(&crash).signal, SIGSEGV);
	cr_expect_eq(verdict_of(&crash).exit_code, -1);
}

Test(verdict, what_the_engine_ended_has_the_limit_as_its_verdict)
{
	struct call_facts f = ran(SIGKILL);

	f.end = CALL_END_CPU;
	is(&f, DSEC_VERDICT_TLE, DSEC_TIMEOUT);
	f.end = CALL_END_WALL;
	is(&f, DSEC_VERDICT_TLE, DSEC_TIMEOUT);
	f.end = CALL_END_OUTPUT;
	is(&f, DSEC_VERDICT_OLE, DSEC_OUTPUT_LIMIT);
	f.end = CALL_END_CANCEL;
	is(&f, DSEC_VERDICT_IE, DSEC_KILLED);
}

Test(verdict, a_quick_program_is_judged_as_a_slow_one)
{
	struct call_facts f = ran(0);

	f.cpu_limit_us = LIMIT_US;
	f.cpu_us = LIMIT_US;
	is(&f, DSEC_VERDICT_OK, DSEC_EXIT);
	f.cpu_us = LIMIT_US + 1;
	is(&f, DSEC_VERDICT_TLE, DSEC_TIMEOUT);
	f.cpu_us = UINT64_MAX; /* not measured is not over */
	is(&f, DSEC_VERDICT_OK, DSEC_EXIT);
	f.output_over = true;
	is(&f, DSEC_VERDICT_OLE, DSEC_OUTPUT_LIMIT);
}

Test(verdict, memory_comes_before_time_and_time_before_output)
{
	struct call_facts f = ran(SIGKILL);

	f.output_over = true;
	f.end = CALL_END_WALL;
	is(&f, DSEC_VERDICT_TLE, DSEC_TIMEOUT);
	f.oom = true;
	is(&f, DSEC_VERDICT_MLE, DSEC_OOM);
}

Test(verdict, what_the_platform_did_is_no_fault_of_the_call)
{
	struct call_facts f = ran(SIGKILL);

	f.box_died = true;
	is(&f, DSEC_VERDICT_IE, DSEC_KILLED);
	f = (struct call_facts){ .not_found = true };
	is(&f, DSEC_VERDICT_IE, DSEC_NOT_STARTED);
	cr_expect_eq(verdict_of(&f).exit_code, 127);
	f.not_found = false;
	cr_expect_eq(verdict_of(&f).exit_code, 126);
}
