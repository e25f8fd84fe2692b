/* The command line: what is understood and what is refused. */
#include "loadgen/options.h"

#include <dsec/dsec.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* options_parse() cuts its arguments, and what it gives points into them. */
struct words {
	char text[32][32];
	char *argv[33];
};

static int parse(struct words *words, struct options *options, const char *const *argv)
{
	int argc = 0;

	for (; argv[argc]; argc++) {
		snprintf(words->text[argc], sizeof(words->text[argc]), "%s", argv[argc]);
		words->argv[argc] = words->text[argc];
	}
	words->argv[argc] = NULL;
	return options_parse(options, argc, words->argv);
}

Test(options, nothing_given_is_ready_in_a_closed_loop)
{
	const char *argv[] = { "dsec-loadgen", NULL };
	struct options options;
	struct words words;

	cr_assert_eq(parse(&words, &options, argv), 0);
	cr_assert_str_eq(options.load.scenario->name, "ready");
	cr_assert_str_eq(options.name, "ready");
	cr_assert_eq(options.load.in_flight, 32);
	cr_assert_eq(options.load.network, DSEC_NETWORK_NONE);
	cr_assert_eq(options.load.rate_per_s, 0);
}

Test(options, all_are_taken)
{
	const char *argv[] = { "dsec-loadgen",
			       "--scenario",
			       "hold",
			       "--count",
			       "5000",
			       "--seconds",
			       "2.5",
			       "--warmup",
			       "0",
			       "--network",
			       "private",
			       "--fresh-root",
			       "--json",
			       "out",
			       "--name",
			       "row",
			       "--floor-rate",
			       "6000",
			       "--peer",
			       "bubblewrap=312.5",
			       "--in-flight",
			       "7",
			       "--hold",
			       "0.5",
			       NULL };
	struct options options;
	struct words words;

	cr_assert_eq(parse(&words, &options, argv), 0);
	cr_assert_str_eq(options.load.scenario->name, "hold");
	cr_assert_eq(options.load.count, 5000);
	cr_assert_eq(options.load.network, DSEC_NETWORK_PRIVATE);
	cr_assert(options.load.is_fresh_root);
	cr_assert_str_eq(options.name, "row");
	cr_assert_eq(options.floor_rate_per_s, 6000);
	cr_assert_eq(options.peer_count, 1);
	cr_assert_str_eq(options.peers[0].name, "bubblewrap");
	cr_assert_eq(options.peers[0].rate_per_s, 312.5);
	cr_assert_eq(options.load.in_flight, 7);
}

Test(options, calls_have_a_program_and_no_ops_come_one_at_a_time)
{
	const char *calls[] = { "dsec-loadgen", "--scenario", "call-domain",
				"--echo",	"/bin/cat",   NULL };
	const char *none[] = { "dsec-loadgen", "--scenario", "no-op", "--spin-us", "50", NULL };
	struct options options;
	struct words words;

	cr_assert_eq(parse(&words, &options, calls), 0);
	cr_assert_eq(options.load.scenario->kind, LOAD_CALL_DOMAIN);
	cr_assert_str_eq(options.load.echo, "/bin/cat");
	cr_assert_eq(options.load.in_flight, 32);
	cr_assert_eq(parse(&words, &options, none), 0);
	cr_assert_eq(options.load.scenario->kind, LOAD_NOOP);
	cr_assert_eq(options.load.spin_us, 50);
	cr_assert_eq(options.load.in_flight, 1);
}

Test(options, an_open_loop_has_room_for_many)
{
	const char *argv[] = { "dsec-loadgen", "--rate", "100", NULL };
	struct options options;
	struct words words;

	cr_assert_eq(parse(&words, &options, argv), 0);
	cr_assert_eq(options.load.in_flight, 4096);
}

Test(options, nonsense_is_refused)
{
	static const char *const bad[][2] = {
		{ "--scenario", "fast" }, { "--seconds", "-1" },   { "--seconds", "nan" },
		{ "--seconds", "1x" },	  { "--count", "1.5" },	   { "--count", "0" },
		{ "--in-flight", "0" },	  { "--network", "host" }, { "--peer", "=3" },
		{ "--peer", "runc" },	  { "--rate", "inf" },
	};

	fclose(stderr);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		const char *argv[] = { "dsec-loadgen", bad[i][0], bad[i][1], NULL };
		struct options options;
		struct words words;

		cr_assert_eq(parse(&words, &options, argv), -EINVAL, "%s %s", bad[i][0], bad[i][1]);
	}
}
