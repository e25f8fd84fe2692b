/*
 * Owns the reading of /proc/meminfo, /proc/stat and what names the machine. Called by main and the
 * hold scenario. Must hold: nothing is guessed; a field that is not there is an error.
 */
#include "loadgen/machine.h"

#include "loadgen/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

struct field {
	const char *name;
	uint64_t *ret_bytes;
};

/* Each field must be found: "Name:   123 kB". */
static int meminfo_read(const struct field *fields, size_t count)
{
	auto_file FILE *file = fopen("/proc/meminfo", "re");
	char line[256];
	size_t found = 0;

	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file)) {
		for (size_t i = 0; i < count; i++) {
			size_t length = strlen(fields[i].name);
			uint64_t kib;

			if (strncmp(line, fields[i].name, length) || line[length] != ':')
				continue;
			if (sscanf(line + length + 1, "%" SCNu64, &kib) != 1)
				return -EINVAL;
			*fields[i].ret_bytes = kib * 1024;
			found++;
		}
	}
	return found == count ? 0 : -ENODATA;
}

int machine_memory_read(struct machine_memory *ret)
{
	struct machine_memory memory;
	const struct field fields[] = {
		{ "MemAvailable", &memory.available_bytes },
		{ "Slab", &memory.slab_bytes },
		{ "Percpu", &memory.percpu_bytes },
		{ "PageTables", &memory.page_tables_bytes },
	};
	int r = meminfo_read(fields, sizeof(fields) / sizeof(*fields));
	if (r < 0)
		return r;
	*ret = memory;
	return 0;
}

int machine_time_read(struct machine_time *ret)
{
	auto_file FILE *file = fopen("/proc/stat", "re");
	uint64_t user, nice, system, idle, iowait, irq, softirq, steal, tick_us;

	if (!file)
		return -errno;
	if (fscanf(file,
		   "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
		   " %" SCNu64 " %" SCNu64,
		   &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal) != 8)
		return -EINVAL;
	tick_us = 1000000u / (uint64_t)sysconf(_SC_CLK_TCK);
	ret->busy_us = (user + nice + system + irq + softirq) * tick_us;
	ret->steal_us = steal * tick_us;
	return 0;
}

static void processor_read(char *ret, size_t bytes)
{
	auto_file FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(ret, bytes, "unknown processor");
	while (file && fgets(line, sizeof(line), file)) {
		char *value = strstr(line, ": ");

		if (strncmp(line, "model name", 10) || !value)
			continue;
		value[strcspn(value, "\n")] = '\0';
		snprintf(ret, bytes, "%s", value + 2);
		return;
	}
}

int machine_describe(struct machine *ret)
{
	const struct field fields[] = { { "MemTotal", &ret->memory_bytes } };
	struct utsname name;

	if (uname(&name))
		return -errno;
	snprintf(ret->kernel, sizeof(ret->kernel), "%s %s", name.sysname, name.release);
	processor_read(ret->processor, sizeof(ret->processor));
	ret->cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	return meminfo_read(fields, 1);
}
