/*
 * Owns the storage of a result and the question how many of our sandboxes the engine still lists.
 * Called by main and the unit tests.
 */
#include "loadgen/load.h"

#include "loadgen/histogram.h"

#include <dsec/dsec.h>

#include <errno.h>
#include <string.h>

enum { LIST_TIMEOUT_MS = 30 * 1000 };

int load_result_init(struct load_result *result)
{
	*result = (struct load_result){ .latency = histogram_new(),
					.lifecycle = histogram_new(),
					.latency_first = histogram_new(),
					.latency_last = histogram_new() };
	if (result->latency && result->lifecycle && result->latency_first && result->latency_last)
		return 0;
	load_result_done(result);
	return -ENOMEM;
}

void load_result_done(struct load_result *result)
{
	histogram_free(result->latency);
	histogram_free(result->lifecycle);
	histogram_free(result->latency_first);
	histogram_free(result->latency_last);
	*result = (struct load_result){ 0 };
}

int64_t load_live_count(struct dsec *d, const char *label)
{
	const struct dsec_label labels[] = { { { "loadgen", 7 }, { label, strlen(label) } } };
	const struct dsec_list_opts opts = { .size = sizeof(opts),
					     .labels = labels,
					     .label_count = 1 };
	int64_t ticket = dsec_list(d, NULL, &opts), rows = 0;
	bool is_last = false;

	if (ticket < 0)
		return ticket;
	while (!is_last) {
		struct dsec_event *event;
		int r = dsec_wait(d, ticket, LIST_TIMEOUT_MS, &event);
		if (r < 0)
			return r;
		rows += event->kind == DSEC_EV_ROW;
		is_last = event->flags & DSEC_LAST;
		if (is_last && event->status.code != DSEC_OK)
			rows = -EIO;
		dsec_event_free(event);
	}
	return rows;
}
