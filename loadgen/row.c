/*
 * Owns the common part of a row of JSON. Called by report.c and calls.c. Must hold: the fields are
 * there whatever happened, and a line is whole or its caller is told.
 */
#include "loadgen/row.h"

#include "loadgen/histogram.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { NINES_MAX = 9, STEPS_A_NINE = 10 };

double row_rate_per_s(const struct row *row)
{
	return row->duration_ns ? (double)row->measured * 1e9 / (double)row->duration_ns : 0;
}

static int rate_compare(const void *a, const void *b)
{
	const uint32_t *left = a, *right = b;

	return *left < *right ? -1 : *left > *right;
}

uint32_t row_rate_median(const struct row *row)
{
	uint32_t *rates = row->rate_count ? calloc(row->rate_count, sizeof(*rates)) : NULL;
	uint32_t median;

	if (!rates)
		return (uint32_t)row_rate_per_s(row);
	for (uint32_t i = 0; i < row->rate_count; i++)
		rates[i] = row->rates[i];
	qsort(rates, row->rate_count, sizeof(*rates), rate_compare);
	median = rates[row->rate_count / 2];
	free(rates);
	return median;
}

double row_us_at(const struct histogram *latency, double share)
{
	return (double)histogram_value_at(latency, share) / 1e3;
}

static void point_add(json_t *points, const struct histogram *latency, double share)
{
	json_array_append_new(points, json_pack("[f, f]", share, row_us_at(latency, share)));
}

/*
 * Points of the distribution, as [share, us]: evenly spaced where nine tenths lie, then on a log
 * scale of what is left, ten for each nine, as far as there is a value behind the point.
 */
static json_t *latency_json(const struct histogram *latency)
{
	static const double steps[STEPS_A_NINE] = { 1.0, 0.8,  0.65, 0.5,  0.4,
						    0.3, 0.25, 0.2,  0.15, 0.12 };
	json_t *points = json_array();
	double left = 0.1;

	for (int i = 0; latency->total && i < 18; i++)
		point_add(points, latency, i * 0.05);
	for (int nine = 1; nine < NINES_MAX; nine++, left /= 10) {
		for (int i = 0; i < STEPS_A_NINE; i++) {
			if (left * steps[i] * (double)latency->total < 1)
				break;
			point_add(points, latency, 1 - left * steps[i]);
		}
	}
	if (latency->total)
		point_add(points, latency, 1);
	return points;
}

static json_t *rates_json(const struct row *row)
{
	json_t *rates = json_array();

	for (uint32_t i = 0; i < row->rate_count; i++)
		json_array_append_new(rates, json_integer(row->rates[i]));
	return rates;
}

static json_t *machine_json(const struct machine *machine)
{
	return json_pack("{s:s, s:s, s:I, s:I}", "kernel", machine->kernel, "processor",
			 machine->processor, "cpus", (json_int_t)machine->cpus, "memory_bytes",
			 (json_int_t)machine->memory_bytes);
}

/* A text that is not UTF-8 would take its whole row with it. */
static json_t *text_json(const char *text)
{
	json_t *json = json_string(text);

	return json ? json : json_string("not UTF-8");
}

static json_t *date_json(void)
{
	char date[sizeof("2026-01-01")] = "";
	time_t now = time(NULL);
	struct tm day;

	if (gmtime_r(&now, &day))
		(void)strftime(date, sizeof(date), "%F", &day); /* "": a year of five digits */
	return json_string(date);
}

json_t *row_json(const struct row *row)
{
	return json_pack("{s:o, s:o, s:b, s:f, s:I, s:I, s:I, s:I, s:I, s:f, s:I,"
			 " s:f, s:f, s:f, s:s, s:i, s:o, s:o, s:o, s:o}",
			 "scenario", text_json(row->name), "date", date_json(), "good",
			 row->is_good, "duration_s", (double)row->duration_ns / 1e9, "asked",
			 (json_int_t)row->asked, "done", (json_int_t)row->done, "refused",
			 (json_int_t)row->refused, "failed", (json_int_t)row->failed, "measured",
			 (json_int_t)row->measured, "rate_per_s", row_rate_per_s(row),
			 "rate_median_per_s", (json_int_t)row_rate_median(row), "p50_us",
			 row_us_at(row->latency, 0.5), "p99_us", row_us_at(row->latency, 0.99),
			 "p999_us", row_us_at(row->latency, 0.999), "latency_of", row->latency_of,
			 "in_flight", (int)row->in_flight, "rates_per_s", rates_json(row),
			 "latency_us", latency_json(row->latency), "machine",
			 machine_json(row->machine), "trouble", text_json(row->trouble));
}

int row_append(json_t *row, const char *path)
{
	FILE *file = row ? fopen(path, "ae") : NULL;
	int r = 0;

	if (!row)
		return -ENOMEM;
	if (!file)
		r = -errno;
	else if (json_dumpf(row, file, JSON_REAL_PRECISION(9)) || fputc('\n', file) == EOF)
		r = -EIO;
	if (file && fclose(file) && !r)
		r = -errno;
	json_decref(row);
	return r;
}
