/* The command line of dsec-loadgen. */
#pragma once

#include "loadgen/load.h"

enum { OPTIONS_PEERS_MAX = 8 };

struct peer {
	const char *name;
	double rate_per_s;
};

struct options {
	struct load_options load;
	const char *address, *instance, *json_path;
	const char *name;		       /* of the row; NULL: the scenario's */
	double hold_seconds, floor_rate_per_s; /* 0: not measured */
	struct peer peers[OPTIONS_PEERS_MAX];
	uint32_t peer_count;
};

/* 0; 1: help was asked for and given; -EINVAL after a line on stderr. Points into argv. */
int options_parse(struct options *options, int argc, char **argv);
