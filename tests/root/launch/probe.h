/* What the probe's files share. */
#pragma once

void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* result is of a system call that must fail with this error. */
void refused(const char *what, long result, int error);
/* result is of a system call that must succeed. */
void allowed(const char *what, long result);

/* probe_kernel.c */
void probe_calls(const char *argument);
void probe_plain_calls(const char *argument);
void probe_sockets(const char *argument);
void probe_ioctls(const char *argument);
void probe_personality(const char *argument);
void probe_foreign(const char *argument);
void probe_call_cost(const char *argument);

/* probe_place.c */
void probe_capabilities(const char *argument);
void probe_mounts(const char *argument);
void probe_masks(const char *argument);
void probe_network_masks(const char *argument);
void probe_loopback(const char *argument);
void probe_devices(const char *argument);
void probe_terminal(const char *argument);
void probe_limits(const char *argument);
void probe_limits_say(const char *argument);
void probe_descriptors(const char *argument);
void probe_init(const char *argument);
void probe_escape(const char *argument);
void probe_names(const char *argument);

/* probe_tty.c */
void probe_own_terminal(const char *argument);
void probe_no_terminal(const char *argument);
void probe_fill_terminals(const char *argument);
void probe_hide_terminals(const char *argument);
void probe_run_away(const char *argument);

/* probe_load.c */
void probe_forks(const char *argument);
void probe_watches(const char *argument);
void probe_stop_all(const char *argument);
void probe_tree(const char *argument);
void probe_orphans(const char *argument);
void probe_fill(const char *argument);

/* probe_walls.c */
void probe_walls_protect(const char *argument);
void probe_walls_hide(const char *argument);
void probe_walls_noexec(const char *argument);
void probe_walls_open(const char *argument);
void probe_walls_families(const char *argument);
void probe_walls_processes(const char *argument);
void probe_walls_ioctl(const char *argument);
void probe_walls_ioctl_list(const char *argument);
/* Its argument is the profile that it is in. */
void probe_walls_profile(const char *argument);
