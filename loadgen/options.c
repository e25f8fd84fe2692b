/*
 * Owns the command line. Called by main. Must hold: every value is checked here, so that the load
 * loop can take it as it is.
 */
#include "loadgen/options.h"

#include "loadgen/number.h"

#include <dsec/dsec.h>

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN_FLIGHT_MAX = 65536, COUNT_MAX = 1000000 };

static const char help[] =
	"usage: dsec-loadgen [options]\n"
	"  --scenario NAME     ready, exec, live-exec or hold (ready); call-fresh, call-domain,\n"
	"                      mixed (a third each of those and of sandboxes), no-op or burst\n"
	"  --seconds S         measured time (10)\n"
	"  --warmup S          before it (1)\n"
	"  --in-flight N       units under way at once (32; live-exec, no-op 1)\n"
	"  --rate R            open loop: units a second, started whatever the engine does; then\n"
	"                      --in-flight only bounds how many wait (4096)\n"
	"  --count N           hold, burst: so many sandboxes (1000)\n"
	"  --hold S            hold: and for so long (2)\n"
	"  --image NAME        (debian)\n"
	"  --policy NAME       of each sandbox (default)\n"
	"  --network NAME      none, private or shared (none)\n"
	"  --fresh-root        never a reused root file system\n"
	"  --program PATH      freestanding program to run (/usr/libexec/dsec/tiny-exit)\n"
	"  --echo PATH         what functions run (/usr/libexec/dsec/tiny-echo)\n"
	"  --spin-us N         calls, no-op: look so long for events before sleeping (5)\n"
	"  --probe PATH        asserts isolation inside (/usr/libexec/dsec/tiny-isolation)\n"
	"  --probe-every N     in the first sandbox and every Nth (500)\n"
	"  --address ADDRESS   a unix socket (DSEC_ADDRESS, else /run/dsec.sock)\n"
	"  --instance NAME     of that engine: residue is looked for in its cgroup (main)\n"
	"  --json FILE         append the report, one line of JSON\n"
	"  --name NAME         what the report calls this scenario\n"
	"  --floor-rate R      of the bare loop of kernel calls, to stand beside ours\n"
	"  --peer NAME=R       another runtime's rate at the same work; several\n"
	"Exit status: 0 when asked = done + refused + failed, nothing failed, something was done,\n"
	"isolation held wherever it was asserted and nothing is left; else 1; 2: bad option.\n";

enum choice {
	CHOICE_SCENARIO = 256,
	CHOICE_SECONDS,
	CHOICE_WARMUP,
	CHOICE_IN_FLIGHT,
	CHOICE_RATE,
	CHOICE_COUNT,
	CHOICE_HOLD,
	CHOICE_IMAGE,
	CHOICE_POLICY,
	CHOICE_NETWORK,
	CHOICE_FRESH_ROOT,
	CHOICE_PROGRAM,
	CHOICE_PROBE,
	CHOICE_ECHO,
	CHOICE_SPIN,
	CHOICE_PROBE_EVERY,
	CHOICE_ADDRESS,
	CHOICE_INSTANCE,
	CHOICE_JSON,
	CHOICE_NAME,
	CHOICE_FLOOR_RATE,
	CHOICE_PEER,
	CHOICE_HELP,
};

static const struct option choices[] = {
	{ "scenario", required_argument, NULL, CHOICE_SCENARIO },
	{ "seconds", required_argument, NULL, CHOICE_SECONDS },
	{ "warmup", required_argument, NULL, CHOICE_WARMUP },
	{ "in-flight", required_argument, NULL, CHOICE_IN_FLIGHT },
	{ "rate", required_argument, NULL, CHOICE_RATE },
	{ "count", required_argument, NULL, CHOICE_COUNT },
	{ "hold", required_argument, NULL, CHOICE_HOLD },
	{ "image", required_argument, NULL, CHOICE_IMAGE },
	{ "policy", required_argument, NULL, CHOICE_POLICY },
	{ "network", required_argument, NULL, CHOICE_NETWORK },
	{ "fresh-root", no_argument, NULL, CHOICE_FRESH_ROOT },
	{ "program", required_argument, NULL, CHOICE_PROGRAM },
	{ "probe", required_argument, NULL, CHOICE_PROBE },
	{ "echo", required_argument, NULL, CHOICE_ECHO },
	{ "spin-us", required_argument, NULL, CHOICE_SPIN },
	{ "probe-every", required_argument, NULL, CHOICE_PROBE_EVERY },
	{ "address", required_argument, NULL, CHOICE_ADDRESS },
	{ "instance", required_argument, NULL, CHOICE_INSTANCE },
	{ "json", required_argument, NULL, CHOICE_JSON },
	{ "name", required_argument, NULL, CHOICE_NAME },
	{ "floor-rate", required_argument, NULL, CHOICE_FLOOR_RATE },
	{ "peer", required_argument, NULL, CHOICE_PEER },
	{ "help", no_argument, NULL, CHOICE_HELP },
	{ 0 },
};

static int count_parse(const char *text, uint32_t least, uint32_t most, uint32_t *ret)
{
	double value;
	int r = number_parse(text, least, most, &value);
	if (r < 0 || value != floor(value))
		return -EINVAL;
	*ret = (uint32_t)value;
	return 0;
}

static int network_parse(const char *text, uint32_t *ret)
{
	if (!strcmp(text, "none"))
		*ret = DSEC_NETWORK_NONE;
	else if (!strcmp(text, "private"))
		*ret = DSEC_NETWORK_PRIVATE;
	else if (!strcmp(text, "shared"))
		*ret = DSEC_NETWORK_SHARED;
	else
		return -EINVAL;
	return 0;
}

/* "bubblewrap=312.5"; cuts the text in two. */
static int peer_parse(struct options *options, char *text)
{
	char *equals = strchr(text, '=');
	struct peer *peer = &options->peers[options->peer_count];

	if (!equals || equals == text || options->peer_count == OPTIONS_PEERS_MAX ||
	    number_parse(equals + 1, 0, 1e9, &peer->rate_per_s) < 0)
		return -EINVAL;
	*equals = '\0';
	peer->name = text;
	options->peer_count++;
	return 0;
}

static int load_option_take(struct load_options *load, enum choice choice, const char *value)
{
	switch (choice) {
	case CHOICE_SCENARIO:
		load->scenario = load_scenario_find(value);
		return load->scenario ? 0 : -EINVAL;
	case CHOICE_SECONDS:
		return number_parse(value, 0.1, LOAD_RATES_MAX, &load->seconds);
	case CHOICE_WARMUP:
		return number_parse(value, 0, 3600, &load->warmup_seconds);
	case CHOICE_IN_FLIGHT:
		return count_parse(value, 1, IN_FLIGHT_MAX, &load->in_flight);
	case CHOICE_RATE:
		return number_parse(value, 0.001, 1e6, &load->rate_per_s);
	case CHOICE_COUNT:
		return count_parse(value, 1, COUNT_MAX, &load->count);
	case CHOICE_NETWORK:
		return network_parse(value, &load->network);
	case CHOICE_PROBE_EVERY:
		return count_parse(value, 1, COUNT_MAX, &load->probe_every);
	case CHOICE_IMAGE:
		load->image = value;
		return 0;
	case CHOICE_POLICY:
		load->policy = value;
		return 0;
	case CHOICE_PROGRAM:
		load->program = value;
		return 0;
	case CHOICE_ECHO:
		load->echo = value;
		return 0;
	case CHOICE_SPIN:
		return count_parse(value, 1, COUNT_MAX, &load->spin_us);
	case CHOICE_PROBE:
		load->probe = value;
		return 0;
	case CHOICE_FRESH_ROOT:
		load->is_fresh_root = true;
		return 0;
	default:
		return -ENOENT;
	}
}

static int option_take(struct options *options, enum choice choice, char *value)
{
	int r = load_option_take(&options->load, choice, value);
	if (r != -ENOENT)
		return r;
	switch (choice) {
	case CHOICE_HOLD:
		return number_parse(value, 0, 3600, &options->hold_seconds);
	case CHOICE_FLOOR_RATE:
		return number_parse(value, 0, 1e9, &options->floor_rate_per_s);
	case CHOICE_PEER:
		return peer_parse(options, value);
	case CHOICE_ADDRESS:
		options->address = value;
		return 0;
	case CHOICE_INSTANCE:
		options->instance = value;
		return 0;
	case CHOICE_JSON:
		options->json_path = value;
		return 0;
	case CHOICE_NAME:
		options->name = value;
		return 0;
	default:
		return -EINVAL;
	}
}

/* What was not given follows from what was. */
static void options_complete(struct options *options)
{
	struct load_options *load = &options->load;

	if (!load->in_flight && load->rate_per_s > 0)
		load->in_flight = 4096;
	else if (!load->in_flight)
		load->in_flight = !strcmp(load->scenario->name, "live-exec") ||
						  load->scenario->kind == LOAD_NOOP ?
					  1 :
					  32;
	if (!options->name)
		options->name = load->scenario->name;
}

int options_parse(struct options *options, int argc, char **argv)
{
	int choice, at, r;

	*options = (struct options){
		.instance = "main",
		.hold_seconds = 2,
		.load = { .scenario = load_scenario_find("ready"),
			  .seconds = 10,
			  .warmup_seconds = 1,
			  .count = 1000,
			  .probe_every = 500,
			  .image = "debian",
			  .program = "/usr/libexec/dsec/tiny-exit",
			  .probe = "/usr/libexec/dsec/tiny-isolation",
			  .echo = "/usr/libexec/dsec/tiny-echo",
			  .network = DSEC_NETWORK_NONE },
	};
	optind = 1;
	while ((choice = getopt_long(argc, argv, "h", choices, &at)) != -1) {
		if (choice == CHOICE_HELP || choice == 'h') {
			fputs(help, stdout);
			return 1;
		}
		if (choice == '?')
			return -EINVAL;
		r = option_take(options, (enum choice)choice, optarg);
		if (r < 0) {
			fprintf(stderr, "dsec-loadgen: bad value for --%s: %s\n", choices[at].name,
				optarg);
			return r;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "dsec-loadgen: what is %s?\n", argv[optind]);
		return -EINVAL;
	}
	options_complete(options);
	return 0;
}
