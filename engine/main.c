/*
 * The program `dsecd`: reads the command line and becomes the keeper, or answers a question about
 * this host and ends.
 */
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/log.h"
#include "engine/check/check.h"
#include "engine/config.h"
#include "engine/keeper/keeper.h"

static int mode_run(struct config *config, enum config_mode mode)
{
	const struct check_options check = {
		.json = config->check_json,
		.images_path = config->images_path,
		.dns_upstream = config->dns_upstream,
		.sandboxes_max = config->sandboxes_max,
	};

	switch (mode) {
	case CONFIG_CHECK:
		return check_run(&check, stdout);
	case CONFIG_HELP:
		config_help(config, stdout);
		return 0;
	case CONFIG_UNINSTALL:
		return keeper_uninstall(config);
	case CONFIG_VERSION:
		puts("dsecd " DSEC_VERSION);
		return 0;
	case CONFIG_RUN:
		break;
	}
#ifndef DSEC_FAULTS
	if (getenv("DSEC_FAULT"))
		log_warning("DSEC_FAULT is ignored: this build has no fault injection");
#endif
	return keeper_run(config);
}

int main(int argc, char **argv)
{
	enum config_mode mode = CONFIG_RUN;
	struct config config;
	int r;

	log_open(LOG_INFO, "dsecd");
	r = config_default(&config);
	if (r < 0) {
		log_error("no memory to start");
		return 1;
	}
	r = config_parse(&config, argc, argv, &mode);
	if (r >= 0)
		log_open((enum log_level)config.log_level, "dsecd");
	r = r < 0 ? KEEPER_EXIT_REFUSED : mode_run(&config, mode);
	config_done(&config);
	return r;
}
