/*
 * The command line of dsec-storms. Called by its main. Must hold: every value is checked here.
 */
#include "loadgen/number.h"
#include "loadgen/storms.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: dsec-storms --program PATH [options] [KIND...]\n"
	"  --program PATH      the storm, a static program (build/loadgen/dsec-storm)\n"
	"  --seconds S         a slice (2), alone and beside in turn\n"
	"  --rounds N          of both; figures are their medians (5)\n"
	"  --rate R            the neighbour's commands a second (100)\n"
	"  --image NAME        (debian)\n"
	"  --command PATH      the neighbour's (/usr/libexec/dsec/tiny-exit)\n"
	"  --json FILE         append a line of JSON for each kind\n"
	"  --name NAME         what the report calls these settings (default)\n"
	"the storming sandbox's limits, without which the engine's hold:\n"
	"  --pids N  --memory MIB  --cpus N  --cpu-weight N  --sched-idle\n"
	"KINDs: cpu death fork memory inodes descriptors pty inotify mqueue socket sync log\n"
	"output. Its engine is $DSEC_ADDRESS, else /run/dsec.sock. Exit status: 0 when all was\n"
	"measured and every command of the neighbour did; 2: bad option.\n";

static const char *const kinds[] = { "cpu",	    "death", "fork",	"memory", "inodes",
				     "descriptors", "pty",   "inotify", "mqueue", "socket",
				     "sync",	    "log",   "output" };

enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

_Static_assert((int)KINDS <= (int)STORMS_KINDS_MAX, "all of them fit");

enum choice {
	CHOICE_PROGRAM = 256,
	CHOICE_SECONDS,
	CHOICE_ROUNDS,
	CHOICE_RATE,
	CHOICE_IMAGE,
	CHOICE_COMMAND,
	CHOICE_JSON,
	CHOICE_NAME,
	CHOICE_PIDS,
	CHOICE_MEMORY,
	CHOICE_CPUS,
	CHOICE_WEIGHT,
	CHOICE_IDLE,
	CHOICE_HELP,
};

static const struct option choices[] = {
	{ "program", required_argument, NULL, CHOICE_PROGRAM },
	{ "seconds", required_argument, NULL, CHOICE_SECONDS },
	{ "rounds", required_argument, NULL, CHOICE_ROUNDS },
	{ "rate", required_argument, NULL, CHOICE_RATE },
	{ "image", required_argument, NULL, CHOICE_IMAGE },
	{ "command", required_argument, NULL, CHOICE_COMMAND },
	{ "json", required_argument, NULL, CHOICE_JSON },
	{ "name", required_argument, NULL, CHOICE_NAME },
	{ "pids", required_argument, NULL, CHOICE_PIDS },
	{ "memory", required_argument, NULL, CHOICE_MEMORY },
	{ "cpus", required_argument, NULL, CHOICE_CPUS },
	{ "cpu-weight", required_argument, NULL, CHOICE_WEIGHT },
	{ "sched-idle", no_argument, NULL, CHOICE_IDLE },
	{ "help", no_argument, NULL, CHOICE_HELP },
	{ 0 },
};

/* Times `unit`, as a whole number. */
static int count_parse(const char *text, double most, double unit, uint32_t *ret)
{
	double value;

	if (number_parse(text, 0, most, &value) < 0)
		return -EINVAL;
	*ret = (uint32_t)(value * unit + 0.5);
	return *ret ? 0 : -EINVAL;
}

static int limit_take(struct storms_options *o, enum choice choice, const char *value)
{
	uint32_t mib;
	int r;

	switch (choice) {
	case CHOICE_PIDS:
		return count_parse(value, 1e6, 1, &o->pids_max);
	case CHOICE_CPUS:
		return count_parse(value, 4096, 1000, &o->cpu_permille);
	case CHOICE_WEIGHT:
		return count_parse(value, 10000, 1, &o->cpu_weight);
	case CHOICE_MEMORY:
		r = count_parse(value, 1e6, 1, &mib);
		o->memory_bytes = r < 0 ? 0 : (uint64_t)mib << 20;
		return r;
	case CHOICE_IDLE:
		o->is_sched_idle = true;
		return 0;
	default:
		return -EINVAL;
	}
}

static int option_take(struct storms_options *o, enum choice choice, const char *value)
{
	switch (choice) {
	case CHOICE_PROGRAM:
		o->program = value;
		return 0;
	case CHOICE_IMAGE:
		o->image = value;
		return 0;
	case CHOICE_COMMAND:
		o->command = value;
		return 0;
	case CHOICE_JSON:
		o->json_path = value;
		return 0;
	case CHOICE_NAME:
		o->name = value;
		return 0;
	case CHOICE_SECONDS:
		return number_parse(value, 0.1, 600, &o->seconds);
	case CHOICE_RATE:
		return number_parse(value, 1, 1000, &o->rate_per_s);
	case CHOICE_ROUNDS:
		return count_parse(value, STORMS_ROUNDS_MAX, 1, &o->rounds);
	default:
		return limit_take(o, choice, value);
	}
}

static int kind_take(struct storms_options *o, const char *name)
{
	for (size_t i = 0; i < KINDS && o->kind_count < STORMS_KINDS_MAX; i++) {
		if (strcmp(kinds[i], name) != 0)
			continue;
		o->kinds[o->kind_count++] = kinds[i];
		return 0;
	}
	fprintf(stderr, "dsec-storms: what is %s?\n", name);
	return -EINVAL;
}

int storms_options_parse(struct storms_options *o, int argc, char **argv)
{
	int choice, at;

	*o = (struct storms_options){ .seconds = 2,
				      .rounds = 5,
				      .rate_per_s = 100,
				      .image = "debian",
				      .name = "default",
				      .command = "/usr/libexec/dsec/tiny-exit" };
	while ((choice = getopt_long(argc, argv, "h", choices, &at)) != -1) {
		if (choice == CHOICE_HELP || choice == 'h') {
			fputs(help, stdout);
			return 1;
		}
		if (choice == '?')
			return -EINVAL;
		if (option_take(o, (enum choice)choice, optarg) < 0) {
			fprintf(stderr, "dsec-storms: bad value for --%s: %s\n", choices[at].name,
				optarg);
			return -EINVAL;
		}
	}
	for (; optind < argc; optind++)
		if (kind_take(o, argv[optind]) < 0)
			return -EINVAL;
	for (size_t i = 0; !o->kind_count && i < KINDS; i++)
		o->kinds[i] = kinds[i];
	if (!o->kind_count)
		o->kind_count = KINDS;
	if (!o->program) {
		fprintf(stderr, "dsec-storms: --program is needed\n");
		return -EINVAL;
	}
	return 0;
}
