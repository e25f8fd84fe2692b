/* Command lines of the CLI. */
#include <criterion/criterion.h>
#include <dsec/dsec.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/params.h"
#include "sdk/cli/ulimit.h"

enum { ARGUMENTS_MAX = 32 };

struct line {
	char *words, *argv[ARGUMENTS_MAX];
	int argc, result;
	struct options options;
};

static void line_free(struct line *line)
{
	params_done(&line->options);
	free(line->words);
	free(line);
}

/* Words are apart by one blank each. */
static struct line *parse(enum verb verb, const char *text)
{
	struct line *line = calloc(1, sizeof(*line));

	line->words = strdup(text);
	for (char *word = strtok(line->words, " "); word; word = strtok(NULL, " "))
		line->argv[line->argc++] = word;
	line->result = params_parse(line->argc, line->argv, verb, &line->options);
	return line;
}

Test(cli_params, every_kind_of_option_is_understood)
{
	struct line *line = parse(VERB_RUN,
				  "-q -m 256M --pids=64 --ttl 2h --network private -e A=1 -eB=2 "
				  "--rm --label task=11099 debian -w /testbed -- prog -x --rm");
	struct options *o = &line->options;

	cr_assert_eq(line->result, 0);
	cr_assert(o->quiet && o->remove);
	cr_assert_not(o->json);
	cr_assert_eq(o->memory_bytes, 256ull << 20);
	cr_assert_eq(o->pids_max, 64);
	cr_assert_eq(o->ttl_ms, 7200000);
	cr_assert_eq(o->network, DSEC_NETWORK_PRIVATE);
	cr_assert_eq(o->env.count, 2);
	cr_assert_str_eq(o->env.items[1], "B=2");
	cr_assert_eq(o->labels.count, 1);
	cr_assert_eq(o->argument_count, 1);
	cr_assert_str_eq(o->arguments[0], "debian");
	cr_assert_str_eq(o->cwd, "/testbed");
	cr_assert_eq(o->command_count, 3);
	cr_assert_str_eq(o->command[1], "-x");
	cr_assert_str_eq(o->command[2], "--rm");
	line_free(line);
}

Test(cli_params, the_programs_options_are_its_own_even_without_dashes)
{
	struct line *line = parse(VERB_RUN, "debian ls -l --json");

	cr_assert_eq(line->result, 0);
	cr_assert_not(line->options.json);
	cr_assert_eq(line->options.command_count, 3);
	line_free(line);
	line = parse(VERB_RUN, "--image debian ls -l");
	cr_assert_eq(line->options.argument_count, 0);
	cr_assert_eq(line->options.command_count, 2);
	line_free(line);
	line = parse(VERB_EXEC, "id -i --timeout 60s -- sh");
	cr_assert(line->options.input);
	cr_assert_eq(line->options.timeout_ms, 60000);
	cr_assert_eq(line->options.command_count, 1);
	line_free(line);
	line = parse(VERB_RM, "a --label k=v b -- -c");
	cr_assert_eq(line->options.argument_count, 3);
	cr_assert_str_eq(line->options.arguments[2], "-c");
	line_free(line);
}

Test(cli_params, short_flags_join_and_a_lone_dash_is_an_argument)
{
	struct line *line = parse(VERB_EXEC, "-qi - prog");

	cr_assert_eq(line->result, 0);
	cr_assert(line->options.quiet && line->options.input);
	cr_assert_str_eq(line->options.arguments[0], "-");
	line_free(line);
}

Test(cli_params, what_is_wrong_is_refused_and_never_clamped)
{
	static const struct {
		enum verb verb;
		const char *text;
	} bad[] = {
		{ VERB_RUN, "--nonsense x -- y" },
		{ VERB_RUN, "-m 1 x -- y" },
		{ VERB_RUN, "-m 256Q x -- y" },
		{ VERB_RUN, "-m" },
		{ VERB_RUN, "--pids 0 x -- y" },
		{ VERB_RUN, "--pids 99999999999 x -- y" },
		{ VERB_RUN, "--network host x -- y" },
		{ VERB_RUN, "--network nonesuch x -- y" },
		{ VERB_RUN, "--rm=yes x -- y" },
		{ VERB_RUN, "--label novalue x -- y" },
		{ VERB_RUN, "--label =v x -- y" },
		{ VERB_RUN, "--image= x -- y" },
		{ VERB_RUN, "--timeout 5000000s x -- y" },
		{ VERB_RUN, "--timeout 0 x -- y" },
		{ VERB_RUN, "--count 3 x -- y" }, /* create's */
		{ VERB_PS, "--rm" },
		{ VERB_CREATE, "--count 0 x" },
		{ VERB_EXEC, "-m 256M id -- y" }, /* run's */
	};

	for (size_t at = 0; at < sizeof(bad) / sizeof(bad[0]); at++) {
		struct line *line = parse(bad[at].verb, bad[at].text);

		cr_assert_eq(line->result, -EINVAL, "%s", bad[at].text);
		cr_assert_neq(line->options.problem[0], '\0', "%s", bad[at].text);
		line_free(line);
	}
}

Test(cli_params, what_is_out_of_range_is_told_the_range)
{
	static const struct {
		enum verb verb;
		const char *text, *problem;
	} cases[] = {
		{ VERB_RUN, "--disk 4K x -- y", "--disk: '4K' is not from 1M to 64T" },
		{ VERB_RUN, "--pids 0 x -- y", "--pids: '0' is not from 1 to 4194304" },
		{ VERB_RUN, "--timeout 25h x -- y", "--timeout: '25h' is not from 1ms to 1d" },
		{ VERB_RUN, "--output-max 5M x -- y", "--output-max: '5M' is not from 1 to 4M" },
		{ VERB_RUN, "--ttl 1ms x -- y", "--ttl: '1ms' is not from 1s to 30d" },
		{ VERB_RUN, "--memory 99999999999999999999 x -- y",
		  "--memory: '99999999999999999999' is not from 1M to 64T" },
		{ VERB_ATTACH, "--from 99999999999999999999 x 1",
		  "--from: '99999999999999999999' is not from 0 to 18446744073709551615" },
	};

	for (size_t at = 0; at < sizeof(cases) / sizeof(cases[0]); at++) {
		struct line *line = parse(cases[at].verb, cases[at].text);

		cr_assert_str_eq(line->options.problem, cases[at].problem);
		line_free(line);
	}
}

Test(cli_params, only_options_of_every_verb_stand_before_it)
{
	char address[] = "-H", path[] = "/run/x.sock", json[] = "--json", ps[] = "ps";
	char rm[] = "--rm", run[] = "run";
	char *good[] = { address, path, json, ps }, *bad[] = { rm, run };
	struct options options = { 0 };

	cr_assert_eq(params_parse_global(4, good, &options), 3);
	cr_assert_str_eq(options.address, "/run/x.sock");
	cr_assert(options.json);
	cr_assert_eq(params_parse_global(2, bad, &options), -EINVAL);
}

Test(cli_params, limits_and_times_of_a_sandbox_are_understood)
{
	struct line *line = parse(VERB_CREATE,
				  "--memory 1G --swap 512M --cpus 1.5 --cpu-weight 50 --pids 64 "
				  "--disk 2G --inodes 1000 --io 10M --io-weight 7 --ttl 90s "
				  "--idle-ttl 5m --on-timeout destroy --sched-idle "
				  "--allow-degraded debian");
	struct options *o = &line->options;

	cr_assert_eq(line->result, 0, "%s", o->problem);
	cr_expect_eq(o->swap_bytes, 512ull << 20);
	cr_expect_eq(o->cpu_permille, 1500);
	cr_expect_eq(o->cpu_weight, 50);
	cr_expect_eq(o->inodes, 1000);
	cr_expect_eq(o->io_bytes_per_s, 10ull << 20);
	cr_expect_eq(o->io_weight, 7);
	cr_expect_eq(o->idle_ttl_ms, 300000);
	cr_expect_eq(o->on_timeout, DSEC_ON_TIMEOUT_DESTROY);
	cr_expect(o->sched_idle && o->allow_degraded);
	line_free(line);
}

Test(cli_params, limits_out_of_their_range_are_refused_by_name)
{
	static const char *const wrong[] = {
		"--cpus 0.005",	     "--cpus 1.x",     "--cpu-weight 0", "--cpu-weight 10001",
		"--io 1K",	     "--io-weight 0",  "--inodes 3",	 "--on-timeout stop",
		"--on-timeout none", "--swap 100000T", "--ttl 1ms",	 "--idle-ttl 0",
	};

	for (size_t at = 0; at < sizeof(wrong) / sizeof(wrong[0]); at++) {
		struct line *line = parse(VERB_CREATE, wrong[at]);
		size_t name = strcspn(wrong[at], " ");

		cr_assert_eq(line->result, -EINVAL, "%s", wrong[at]);
		cr_assert(!strncmp(line->options.problem, wrong[at], name), "%s: %s", wrong[at],
			  line->options.problem);
		line_free(line);
	}
}

Test(cli_params, a_change_to_no_time_is_not_the_same_as_no_change)
{
	struct line *line = parse(VERB_CHANGE, "--idle-ttl 0 id");

	cr_assert_eq(line->result, 0);
	cr_expect(line->options.has_idle_ttl && !line->options.has_ttl);
	cr_expect_eq(line->options.idle_ttl_ms, 0);
	line_free(line);
	line = parse(VERB_CHANGE, "--pids 3 id");
	cr_assert_eq(line->result, -EINVAL);
	line_free(line);
}

Test(cli_params, a_terminal_and_limits_are_of_programs)
{
	struct line *line = parse(VERB_EXEC, "-it --ulimit nofile=64 --ulimit=core=0:1M web -- sh");

	cr_assert_eq(line->result, 0);
	cr_assert(line->options.input && line->options.tty);
	cr_assert_eq(line->options.ulimits.count, 2);
	cr_assert_str_eq(line->options.ulimits.items[1], "core=0:1M");
	line_free(line);
	line = parse(VERB_EXEC, "--ulimit nofile web -- sh");
	cr_assert_eq(line->result, -EINVAL);
	line_free(line);
	line = parse(VERB_CREATE, "-t debian");
	cr_assert_eq(line->result, -EINVAL);
	line_free(line);
}

Test(cli_params, kill_takes_a_signal_and_whom_it_is_for)
{
	struct line *line = parse(VERB_KILL, "web 3 -s KILL --all");

	cr_assert_eq(line->result, 0);
	cr_assert_str_eq(line->options.signal, "KILL");
	cr_assert(line->options.all);
	cr_assert_not(line->options.terminal);
	cr_assert_eq(line->options.argument_count, 2);
	line_free(line);
	line = parse(VERB_RM, "web --all");
	cr_assert_eq(line->result, -EINVAL);
	line_free(line);
}

Test(cli_params, limits_are_read_as_they_are_written)
{
	static const struct {
		const char *text;
		struct dsec_rlimit limit;
		int result;
	} cases[] = {
		{ "nofile=64", { 7, 0, 64, 64 }, 0 },
		{ "as=1G:2G", { 9, 0, 1ull << 30, 2ull << 30 }, 0 },
		{ "core=0:unlimited", { 4, 0, 0, UINT64_MAX }, 0 },
		{ "cpu=unlimited", { 0, 0, UINT64_MAX, UINT64_MAX }, 0 },
		{ "nofile=2:1", { 0 }, -ERANGE },
		{ "nofiles=1", { 0 }, -EINVAL },
		{ "nofile=", { 0 }, -EINVAL },
		{ "nofile=1:", { 0 }, -EINVAL },
		{ "nofile=-1", { 0 }, -EINVAL },
		{ "nofile", { 0 }, -EINVAL },
		{ "=1", { 0 }, -EINVAL },
		{ "nofile=99999999999999999999999999", { 0 }, -EINVAL },
	};

	for (size_t at = 0; at < sizeof(cases) / sizeof(cases[0]); at++) {
		struct dsec_rlimit limit = { 0 };

		cr_assert_eq(ulimit_parse(cases[at].text, &limit), cases[at].result, "%s",
			     cases[at].text);
		cr_assert_eq(memcmp(&limit, &cases[at].limit, sizeof(limit)), 0, "%s",
			     cases[at].text);
	}
}
