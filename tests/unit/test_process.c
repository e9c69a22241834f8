/* test_process.c - the limits of cgroups, and the defaults that follow from them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "options.h"
#include "process.h"

static char root[64];

static void make_root(void) {
    snprintf(root, sizeof root, "/tmp/process-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void remove_root(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    cr_assert_eq(system(command), 0);
}

TestSuite(limits, .init = make_root, .fini = remove_root);

/* Writes a file below the root, and makes its folders. */
static void write_below(const char *path, const char *text) {
    char whole[256];
    const int size = snprintf(whole, sizeof whole, "%s%s", root, path);
    for (int i = (int)sizeof "/tmp/" - 1; i < size; i++) {
        if (whole[i] == '/') {
            whole[i] = '\0';
            mkdir(whole, 0700);
            whole[i] = '/';
        }
    }
    FILE *file = fopen(whole, "w");
    cr_assert_not_null(file, "%s", whole);
    fputs(text, file);
    cr_assert_eq(fclose(file), 0);
}

static void expect_limits(double cores, double memory) {
    const struct process_limits limits = process_limits(root);
    cr_expect(limits.cores >= cores && limits.cores <= cores, "%g cores, not %g", limits.cores,
              cores);
    cr_expect(limits.memory >= memory && limits.memory <= memory, "%.0f bytes, not %.0f",
              limits.memory, memory);
}

Test(limits, are_those_of_the_machine_without_cgroups) {
    const double cores = process_limits(root).cores;
    cr_expect_geq(cores, 1);
    expect_limits(cores, 0);
    write_below("/proc/self/cgroup", "0::/\n");
    write_below("/sys/fs/cgroup/cpu.max", "max 100000\n");
    write_below("/sys/fs/cgroup/memory.max", "max\n");
    expect_limits(cores, 0);
}

Test(limits, of_version_2_are_those_of_the_own_cgroup) {
    write_below("/proc/self/cgroup", "0::/\n");
    write_below("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    write_below("/sys/fs/cgroup/memory.max", "536870912\n");
    expect_limits(0.5, 536870912);
}

Test(limits, of_cgroups_above_count_too) {
    write_below("/proc/self/cgroup", "0::/pods.slice/one/two\n");
    write_below("/sys/fs/cgroup/pods.slice/memory.max", "1000000\n");
    write_below("/sys/fs/cgroup/pods.slice/one/cpu.max", "25000 100000\n");
    write_below("/sys/fs/cgroup/pods.slice/one/two/cpu.max", "75000 100000\n");
    write_below("/sys/fs/cgroup/pods.slice/one/two/memory.max", "2000000\n");
    expect_limits(0.25, 1000000);
}

Test(limits, of_version_1_lie_in_a_folder_of_each_controller) {
    const double cores = process_limits(root).cores;
    write_below("/proc/self/cgroup", "9:cpuset:/x\n4:memory:/docker/a\n1:cpu,cpuacct:/docker/a\n");
    write_below("/sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "9223372036854771712\n");
    write_below("/sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "-1\n");
    write_below("/sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us", "100000\n");
    expect_limits(cores, 0);
    write_below("/sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "30000\n");
    write_below("/sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "268435456\n");
    expect_limits(0.3, 268435456);
}

/* A container of version 1 sees its own cgroup at the mount, but /proc has the path outside. */
Test(limits, are_found_if_the_path_is_not_there) {
    write_below("/proc/self/cgroup", "4:memory:/docker/a\n");
    write_below("/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
    cr_expect(process_limits(root).memory > 0);
}

Test(limits, that_make_no_sense_do_not_count) {
    const double cores = process_limits(root).cores;
    write_below("/proc/self/cgroup", "no colon\n0::/\n4:memory\n");
    write_below("/sys/fs/cgroup/cpu.max", "0 0\n");
    write_below("/sys/fs/cgroup/memory.max", "much\n");
    expect_limits(cores, 0);
}

Test(limits, decide_the_threads_and_the_budgets) {
    static const struct {
        double cores, memory;
        unsigned io_threads, workers;
        size_t total, most, layers; /* MiB */
    } rows[] = {
        {1, 0, 1, 1, 2048, 512, 1024},
        {0.25, 0, 1, 1, 2048, 512, 1024},
        {2.5, 0, 3, 3, 2048, 512, 1024},
        {96, 0, 4, 64, 2048, 512, 1024},
        {4, 512.0 * (1 << 20), 4, 4, 256, 64, 128},
        {4, 64.0 * (1 << 30), 4, 4, 32768, 512, 1024},
        {1, 1000, 1, 1, 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct server_options options = {.max_memory = (size_t)512 << 20,
                                         .total_memory = (size_t)2 << 30,
                                         .layers.memory = (size_t)1 << 30,
                                         .container = {rows[i].cores, rows[i].memory}};
        options_fit(&options);
        cr_expect_eq(options.http.threads, rows[i].io_threads, "row %zu", i);
        cr_expect_eq(options.jobs.threads, rows[i].workers, "row %zu", i);
        cr_expect_eq(options.total_memory >> 20, rows[i].total, "row %zu", i);
        cr_expect_eq(options.max_memory >> 20, rows[i].most, "row %zu", i);
        cr_expect_eq(options.layers.memory >> 20, rows[i].layers, "row %zu", i);
    }
}
