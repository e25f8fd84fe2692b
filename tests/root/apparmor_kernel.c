/* Reads securityfs. Called by tests of the guard and of engines. */
#include "tests/root/apparmor_kernel.h"

#include <stdio.h>
#include <string.h>

#define SECURITY "/sys/kernel/security"

unsigned apparmor_profiles(const char *start)
{
	FILE *file = fopen(SECURITY "/apparmor/profiles", "re");
	unsigned count = 0;
	char line[512];

	while (file && fgets(line, sizeof line, file))
		count += !strncmp(line, start, strlen(start));
	if (file)
		(void)fclose(file); /* only read */
	return count;
}

bool apparmor_is_asked_first(void)
{
	FILE *file = fopen(SECURITY "/lsm", "re");
	const char *own, *bpf;
	char order[256] = "";

	if (file && !fgets(order, sizeof order, file))
		order[0] = 0;
	if (file)
		(void)fclose(file); /* only read */
	own = strstr(order, "apparmor");
	bpf = strstr(order, "bpf");
	return own && bpf && own < bpf;
}
