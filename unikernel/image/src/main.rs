//! `lowroad-kernel-image KERNEL SITE IMAGE`: adds a site to the kernel.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [kernel, site, image] = args.as_slice() else {
        eprintln!("usage: lowroad-kernel-image KERNEL SITE IMAGE");
        return ExitCode::from(2);
    };
    let read = |path: &std::ffi::OsString| {
        std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let result = read(kernel)
        .and_then(|kernel| {
            lowroad_kernel_image::build(&kernel, &read(site)?).map_err(|error| error.to_string())
        })
        .and_then(|bytes| {
            std::fs::write(image, bytes).map_err(|error| format!("{}: {error}", image.display()))
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lowroad-kernel-image: {error}");
            ExitCode::FAILURE
        }
    }
}
