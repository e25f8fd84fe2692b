/* What the kernel says of AppArmor, for tests. */
#pragma once

#include <stdbool.h>

/* Profiles that are loaded whose names begin so; 0 also where the kernel has no AppArmor. */
unsigned apparmor_profiles(const char *start);
/* It is asked before LSM programs of BPF; false too where the kernel lacks one of them. */
bool apparmor_is_asked_first(void);
