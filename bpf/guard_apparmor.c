/*
 * Loads profiles into the kernel, and takes them out again. Called by guard.c and guard_policy.c
 * on the control thread. Must hold: a profile goes only when nobody lives in it, for whoever does
 * is unconfined then.
 */
#include "bpf/guard_apparmor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/apparmor.h>

#include "bpf/apparmor_compile.h"
#include "bpf/guard_pins.h"
#include "bpf/guard_why.h"
#include "engine/base/cleanup.h"

#define SECURITY "/sys/kernel/security"
#define PROFILES SECURITY "/apparmor/profiles"

struct guard_apparmor {
	aa_kernel_interface *kernel;
	struct profile_scope scope;
	char instance[GUARD_INSTANCE_BYTES_MAX];
};

/* The kernel asks them in this order, and goes no further than the first that refuses. */
static bool is_before_bpf(void)
{
	char order[256] = "", *rest = NULL;
	FILE *file = fopen(SECURITY "/lsm", "re");
	bool before = true;

	if (!file || !fgets(order, sizeof order, file))
		order[0] = 0; /* as distributions have it, then */
	if (file)
		(void)fclose(file); /* only read */
	for (char *name = strtok_r(order, ",\n", &rest); name;
	     name = strtok_r(NULL, ",\n", &rest)) {
		if (strcmp(name, "apparmor") == 0)
			return before;
		if (strcmp(name, "bpf") == 0)
			before = false;
	}
	return true;
}

/* Out of a profile of its own a program cannot go into another. */
static bool is_unconfined(void)
{
	char *label = NULL, *mode;
	bool r = aa_getcon(&label, &mode) >= 0 && strcmp(label, "unconfined") == 0;

	free(label);
	return r;
}

static const char *missing(void)
{
	if (aa_is_enabled() != 1)
		return errno == ENOENT ? "mount securityfs on " SECURITY :
					 "boot with apparmor=1 and apparmor in lsm=";
	if (access(APPARMOR_PARSER, X_OK) < 0)
		return "install the package apparmor, whose parser compiles profiles";
	if (!is_unconfined())
		return "start dsecd unconfined: it is in a profile itself";
	return NULL;
}

int guard_apparmor_open(const struct profile_scope *scope, struct guard_why *why,
			struct guard_apparmor **ret)
{
	const char *remedy = missing();
	struct guard_apparmor *apparmor;

	if (remedy) {
		guard_why_add(why, "no profiles of AppArmor around sandboxes: %s\n", remedy);
		return -EOPNOTSUPP;
	}
	apparmor = calloc(1, sizeof *apparmor);
	if (!apparmor)
		return -ENOMEM;
	if (aa_kernel_interface_new(&apparmor->kernel, NULL, NULL) < 0) {
		guard_why_add(why, "no profiles of AppArmor around sandboxes (%s)\n",
			      strerror(errno));
		free(apparmor);
		return -EOPNOTSUPP;
	}
	apparmor->scope = *scope;
	apparmor->scope.lsm_tells = scope->lsm_tells && is_before_bpf();
	(void)snprintf(apparmor->instance, sizeof apparmor->instance, "%s", scope->instance);
	apparmor->scope.instance = apparmor->instance;
	*ret = apparmor;
	return 0;
}

void guard_apparmor_close(struct guard_apparmor *apparmor)
{
	if (!apparmor)
		return;
	aa_kernel_interface_unref(apparmor->kernel);
	free(apparmor);
}

int guard_apparmor_load(const struct guard_apparmor *apparmor, const struct guard_policy *policy)
{
	struct profile profile;
	auto_free char *text = NULL;
	auto_close int fd = -1;
	char why[256];
	int r = apparmor ? profile_write(&apparmor->scope, policy, &profile) : 0;

	if (r < 0 || !apparmor || !profile.text)
		return r;
	text = profile.text;
	r = apparmor_compile(text, profile.bytes, why, sizeof why, &fd);
	if (r < 0)
		return r;
	return aa_kernel_interface_replace_policy_from_fd(apparmor->kernel, fd) < 0 ? -errno : 0;
}

static int profile_remove(aa_kernel_interface *kernel, const char *name)
{
	if (aa_kernel_interface_remove_policy(kernel, name) == 0 || errno == ENOENT)
		return 0;
	return -errno;
}

int guard_apparmor_drop(const struct guard_apparmor *apparmor, const struct guard_policy *policy)
{
	char name[PROFILE_NAME_BYTES];
	int r = guard_apparmor_name(apparmor, policy, name);

	return r < 0 || !*name ? r : profile_remove(apparmor->kernel, name);
}

int guard_apparmor_name(const struct guard_apparmor *apparmor, const struct guard_policy *policy,
			char ret[static PROFILE_NAME_BYTES])
{
	struct profile profile = { 0 };
	int r = apparmor ? profile_write(&apparmor->scope, policy, &profile) : 0;

	if (r < 0)
		return r;
	memcpy(ret, profile.name, sizeof profile.name);
	free(profile.text);
	return 0;
}

bool guard_apparmor_holds(const struct guard_apparmor *apparmor, const struct guard_policy *policy,
			  uint32_t at)
{
	return apparmor && profile_holds(&apparmor->scope, policy, at);
}

/* The next profile of the instance: its name, without its mode; false: there is none. */
static bool profile_next(FILE *list, const char *instance, char ret[static PROFILE_NAME_BYTES])
{
	char line[512], *end;

	while (fgets(line, sizeof line, list)) {
		end = strstr(line, " (");
		if (!end)
			continue;
		*end = 0;
		if (!profile_name_is_of(line, instance))
			continue;
		memcpy(ret, line, strlen(line) + 1);
		return true;
	}
	return false;
}

/* The list changes as they go: each is looked for from its beginning. */
int guard_apparmor_sweep(const char *instance)
{
	aa_kernel_interface *kernel = NULL;
	char name[PROFILE_NAME_BYTES];
	bool more = true;
	int r = 0;

	while (more && r == 0) {
		FILE *list = fopen(PROFILES, "re");

		more = list && profile_next(list, instance, name);
		if (list)
			(void)fclose(list); /* only read */
		if (!more)
			break;
		if (!kernel && aa_kernel_interface_new(&kernel, NULL, NULL) < 0)
			return -errno;
		r = profile_remove(kernel, name);
	}
	aa_kernel_interface_unref(kernel);
	return r;
}
