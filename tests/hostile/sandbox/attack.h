/* What the attack's files share. */
#pragma once

void say(const char *text);

/* attack_take.c: as many of a thing as there are, then hold them for ever. */
void take_files(const char *argument);
void take_watches(const char *argument);
void take_terminals(const char *argument);
void take_queues(const char *argument);
void take_polls(const char *argument);
void take_pipes(const char *argument);
void take_sockets(const char *argument);
void one_of_each(const char *argument);

/* attack_files.c: at operations on files. */
void swap_names(const char *argument);
void swap_kinds(const char *argument);
void grow_file(const char *argument);
void make_socket(const char *argument);
void touch_helper(const char *argument);

/* attack_tty.c: at terminals. */
void steal_terminal(const char *argument);
void wrestle_terminal(const char *argument);

/* attack_pipe.c: at pipes that the engine reads and writes. */
void hold_output(const char *argument);
void hold_input(const char *argument);

/* attack_kernel.c: at the kernel's own machinery. */
void attack_capabilities(const char *argument);
void attack_devices(const char *argument);
void attack_bpf(const char *argument);
void attack_filter(const char *argument);
void attack_layer(const char *argument);

/* attack_reach.c: at what lies outside the sandbox, or enters it. */
void attack_entering(const char *argument);
void trace_all(const char *argument);
void debug_own(const char *argument);
void reach(const char *argument);
void write_settings(const char *argument);
void see_others(const char *argument);
