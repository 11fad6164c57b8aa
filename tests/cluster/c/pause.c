/* Process 1 of a Pod's sandbox, and of a node: it does nothing but wait, collect the dead, and end when told to. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) { (void)number; _exit(0); }
static void collect(int number) { (void)number; while (waitpid(-1, NULL, WNOHANG) > 0); }

int main(void)
{
    const struct sigaction ending = {.sa_handler = end}, collecting = {.sa_handler = collect, .sa_flags = SA_NOCLDSTOP};
    if (sigaction(SIGINT, &ending, NULL) || sigaction(SIGTERM, &ending, NULL) || sigaction(SIGCHLD, &collecting, NULL))
        return 1;
    for (;;)
        pause();
}
