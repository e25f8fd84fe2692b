/*
 * What every scenario's row of JSON has: the account, the rate second by second, how latency is
 * distributed, the machine. Readers (report.py, page.py) may count on these fields; what a
 * scenario has beside them it adds.
 */
#pragma once

#include "loadgen/machine.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct histogram;

struct row {
	const char *name, *latency_of, *trouble; /* trouble "": none */
	const struct histogram *latency;	 /* ns */
	const struct machine *machine;
	uint64_t asked, done, refused, failed;
	uint64_t measured, duration_ns; /* ended within the measured time, and how long that was */
	const uint32_t *rates;		/* units that ended in each whole measured second */
	uint32_t rate_count, in_flight;
	bool is_good;
};

double row_rate_per_s(const struct row *row);

/* Of the rates of whole seconds; of less than a second there is only the one. */
uint32_t row_rate_median(const struct row *row);

/* The value in us that this share (0 to 1) of all is not above. */
double row_us_at(const struct histogram *latency, double share);

/* The caller's; NULL without memory. */
json_t *row_json(const struct row *row);

/* Appends a line to the file and lets go of the row, NULL too; 0 or -errno. */
int row_append(json_t *row, const char *path);
