/*
 * start.c - the starter of the bundle: it runs the daemon with the loader and the libraries that
 * stand beside it in the folder `root`, so that the system needs none. It is linked statically.
 */
#define _GNU_SOURCE /* pipe2, realpath */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* make-bundle.sh defines the paths of the loader and of the libraries' folder in `root`, and the
 * names of the libraries. */
#if !defined LOADER || !defined LIBRARIES || !defined NAMES
#error "make-bundle.sh compiles this file"
#endif

/* The system's libraries for every program. The loader reads this file, too, and no option of the
 * loader prevents that. */
#define PRELOAD "/etc/ld.so.preload"

static void fail(const char *what, const char *which) {
    fprintf(stderr, "attentiond: %s %s: %s\n", what, which, strerror(errno));
    exit(1);
}

/* Makes `folder` the folder of this program, without symbolic links. If there is no /proc, the path
 * by which the kernel was asked for this program leads to it. */
static void find_folder(char folder[PATH_MAX]) {
    const ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    if (length >= 0) {
        folder[length] = '\0';
    } else if (realpath((const char *)getauxval(AT_EXECFN), folder) == NULL) {
        fail("cannot find its folder by", (const char *)getauxval(AT_EXECFN));
    }
    *strrchr(folder, '/') = '\0';
    /* The loader takes the path as a list, in which it replaces words such as $ORIGIN. */
    if (strpbrk(folder, ":;$") != NULL) {
        fprintf(stderr, "attentiond: the path of its folder may not have : ; or $: %s\n", folder);
        exit(1);
    }
}

/* Returns the path of a file in `root`, which is never freed. */
static char *in_root(const char *folder, const char *file) {
    const size_t size = strlen(folder) + strlen("/root") + strlen(file) + 1;
    char *path = malloc(size);
    if (path == NULL) {
        fail("cannot run", file);
    }
    snprintf(path, size, "%s/root%s", folder, file);
    return path;
}

/* The loader would take a library that is not here from the folders of the system. */
static void check_libraries(const char *libraries) {
    static const char *const names[] = {NAMES};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (snprintf(path, sizeof path, "%s/%s", libraries, names[i]) >= (int)sizeof path) {
            errno = ENAMETOOLONG;
            fail("cannot run in", libraries);
        }
        if (access(path, R_OK) != 0) {
            fail("cannot run without", path);
        }
    }
}

/* Runs a program in a child, and puts the last line that it prints into `said`. Returns how it
 * ended, or 0 if that is not known. Neither side waits for the pipe, which others may keep open. */
static int try_run(char *const words[], char *said, int size) {
    int ends[2], status = 0;
    if (pipe2(ends, O_NONBLOCK) != 0) {
        return 0;
    }
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execv(words[0], words);
        _exit(0); /* main() gets the same error */
    }
    close(ends[1]);
    if (child < 0 || waitpid(child, &status, 0) != child) {
        status = 0;
    }
    FILE *prints = fdopen(ends[0], "r");
    if (prints == NULL) {
        close(ends[0]);
    } else {
        while (fgets(said, size, prints) != NULL) {
        }
        fclose(prints);
    }
    said[strcspn(said, "\n")] = '\0';
    return status;
}

/* A library that the system preloads belongs to another C library, so the loader may refuse it with
 * an error that names neither this file nor the reason. `first` is how the daemon is started. */
static void check_preload(char *const first[], size_t count) {
    struct stat file;
    char said[1024] = "", *words[16] = {NULL};
    if (stat(PRELOAD, &file) != 0 || file.st_size == 0) {
        return;
    }
    memcpy(words, first, count * sizeof *words);
    words[count] = "--version";
    const int status = try_run(words, said, sizeof said);
    if (WIFSIGNALED(status) || WEXITSTATUS(status) == 127) { /* the status of the loader */
        fprintf(stderr,
                "attentiond: it cannot run with a library that this system loads into every "
                "program (" PRELOAD "): %s\n",
                said[0] != '\0' ? said : "it stops without a message");
        exit(1);
    }
}

int main(int argc, char *argv[]) {
    static char folder[PATH_MAX];
    find_folder(folder);
    char *libraries = in_root(folder, LIBRARIES);
    char *first[] = {in_root(folder, LOADER),
                     "--inhibit-cache",
                     "--library-path",
                     libraries,
                     "--argv0",
                     "attentiond",
                     in_root(folder, "/attentiond")};
    const size_t count = sizeof first / sizeof *first;
    char **words = calloc(count + (size_t)argc + 1, sizeof *words); /* the last stays NULL */
    if (words == NULL || setenv("ATTENTIOND_LAYERS", in_root(folder, "/mnt/models"), 0) != 0) {
        fail("cannot run", first[0]);
    }
    memcpy(words, first, sizeof first);
    for (int i = 1; i < argc; i++) {
        words[count + (size_t)i - 1] = argv[i];
    }
    /* These name libraries of the system, which belong to another loader. */
    unsetenv("LD_AUDIT");
    unsetenv("LD_LIBRARY_PATH");
    unsetenv("LD_PRELOAD");
    check_libraries(libraries);
    check_preload(first, count);
    execv(first[0], words);
    fail("cannot run", first[0]);
}
