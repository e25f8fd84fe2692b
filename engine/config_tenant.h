/*
 * The option --tenant of dsecd, and what each tenant may have of the engine.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/config.h"

/*
 * One --tenant: KEY=VALUE, separated by commas. -EINVAL after one line on stderr that names the
 * key; -ENOMEM.
 */
int tenant_parse(struct config *config, const char *value);
/* All of them together, once all options are known: -EINVAL after one line. */
int tenants_check(const struct config *config);
void tenants_free(struct config *config);

bool tenant_name_is_good(const char *name);
/*
 * What is given, else an equal part of what the engine has and the others were not given, at least
 * 1. 0: no limit, which there is where the engine has none either.
 */
uint32_t tenant_limit(const struct config *config, uint32_t tenant, enum tenant_limit limit);
/* Were they given more than the engine has: one could be refused because of another. */
bool tenant_limits_exceed(const struct config *config, enum tenant_limit limit);
/* Its name: "sandboxes-max". */
const char *tenant_limit_name(enum tenant_limit limit);
