//! What the system tells a program by signals, told to an ordinary thread.
//!
//! | signal                  | what becomes of it                                                                          |
//! |-------------------------|---------------------------------------------------------------------------------------------|
//! | SIGINT, SIGTERM, SIGHUP, SIGQUIT | an interruption; ignored where it was when the program started (`nohup`, jobs in a script)  |
//! | SIGXCPU                 | beyond `ulimit -t`: an interruption too, but only the first, for it comes every second      |
//! | SIGXFSZ                 | ignored: beyond `ulimit -f` a write fails like any other, with a line that says so          |
//! | SIGBUS                  | a mapped file was cut short by another program: one line, and the end                       |
//!
//! A handler may call very few functions: ours write the signal's number into a pipe. A thread reads it there and does the rest.

#[cfg(unix)]
pub use unix::watch;

/// Calls `interrupted` on a thread of its own whenever Ctrl-C is pressed.
#[cfg(not(unix))]
pub fn watch(interrupted: fn()) -> std::io::Result<()> {
    ctrlc::set_handler(interrupted).map_err(|e| std::io::Error::other(e.to_string()))
}

#[cfg(unix)]
#[allow(unsafe_code)] // the standard library has no signals; every call below is given valid pointers, and handlers that call nothing but `write` and `pause`
mod unix {
    use crate::interrupt;
    use attnlearn::files::mapped_file;
    use libc::{
        SA_ONSTACK, SA_RESTART, SA_SIGINFO, SIG_IGN, SIGBUS, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU, SIGXFSZ, c_int, c_void,
        siginfo_t,
    };
    use std::io::{self, Read};
    use std::mem::zeroed;
    use std::os::fd::IntoRawFd;
    use std::ptr::{null, null_mut};
    use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

    /// Where handlers write to.
    static PIPE: AtomicI32 = AtomicI32::new(-1);
    /// The address that could not be read.
    static ADDRESS: AtomicUsize = AtomicUsize::new(0);

    /// Calls `interrupted` on a thread of its own for every interruption, and sees to the other signals.
    pub fn watch(interrupted: fn()) -> io::Result<()> {
        let (mut reader, writer) = io::pipe()?;
        // Never closed: a handler may write to it until the very end.
        PIPE.store(writer.into_raw_fd(), Ordering::Relaxed);
        std::thread::Builder::new().name("signals".into()).stack_size(1 << 18).spawn(move || {
            let mut signal = [0];
            while reader.read_exact(&mut signal).is_ok() {
                match c_int::from(signal[0]) {
                    SIGBUS => cut_short(ADDRESS.load(Ordering::Relaxed)),
                    SIGXCPU if interrupt::requested() => {}
                    _ => interrupted(),
                }
            }
        })?;
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU] {
            if !is_ignored(signal)? {
                handle(signal, pass_on as *const () as usize, SA_RESTART)?;
            }
        }
        handle(SIGXFSZ, SIG_IGN, 0)?;
        handle(SIGBUS, fault as *const () as usize, SA_SIGINFO | SA_ONSTACK)
    }

    /// Says which file it was, and ends the program: the thread that reads it cannot go on.
    fn cut_short(address: usize) {
        let place = mapped_file(address).map_or_else(|| "memory".into(), |path| path.display().to_string());
        interrupt::end(&format!("{place}: was cut short while it was read; leave it alone until the run is over"), 2);
    }

    fn is_ignored(signal: c_int) -> io::Result<bool> {
        // SAFETY: a null pointer asks for no change, and the other is to a structure of the right type, for which zeros are valid.
        let (failed, now) = unsafe {
            let mut now: libc::sigaction = zeroed();
            (libc::sigaction(signal, null(), &raw mut now), now)
        };
        if failed == 0 { Ok(now.sa_sigaction == SIG_IGN) } else { Err(io::Error::last_os_error()) }
    }

    fn handle(signal: c_int, handler: usize, flags: c_int) -> io::Result<()> {
        // SAFETY: the structure is valid, and so is its handler: `SIG_IGN`, or one of the two below with the flags that belong to it.
        let failed = unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = flags;
            libc::sigaction(signal, &raw const action, null_mut())
        };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    extern "C" fn pass_on(signal: c_int) {
        let number = signal as u8;
        // SAFETY: one byte that is there; `write` is among the functions that a handler may call. Where it fails there is nobody to tell.
        unsafe { libc::write(PIPE.load(Ordering::Relaxed), (&raw const number).cast(), 1) };
    }

    extern "C" fn fault(signal: c_int, about: *mut siginfo_t, _: *mut c_void) {
        // SAFETY: with SA_SIGINFO the system passes a valid pointer.
        ADDRESS.store(unsafe { (*about).si_addr() }.addr(), Ordering::Relaxed);
        pass_on(signal);
        loop {
            // SAFETY: a handler may call it. To return would be to read there again; the thread at the other end of the pipe ends the program.
            unsafe { libc::pause() };
        }
    }
}
