"""An AWS account for tests: moto's server with its gaps closed, and a few handles to make it misbehave.

    emulator.py --catalogue crates/cloud/data/aws.txt

Prints `ready <port>` once it listens on loopback, and lives until it is killed. Everything is in memory.

    SDK ──▶ Door ──┬─ /kerf/…                        what tests turn: stock, policy, failures, impairments (control.py)
                   ├─ pricing, arc-zonal-shift, sts   services that moto lacks (stubs.py)
                   └─ moto ── EC2, SSM, SQS, IAM …    patched (ec2.py, images.py); every call judged first (access.py)

Nothing here is a model of EC2's scheduling: the cheapest override that has stock wins.
"""

import argparse
import os
import sys


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--catalogue", required=True, help="the built-in catalogue, for prices")
    arguments.add_argument("--port", type=int, default=0)
    options = arguments.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    # Read by moto when it is imported: only the images that images.py makes.
    os.environ["MOTO_AMIS_PATH"] = os.path.join(here, "no-images.json")

    from werkzeug.serving import WSGIRequestHandler, make_server

    import ec2
    import images
    from account import ACCOUNT
    from door import Door
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    class Quiet(WSGIRequestHandler):
        """Says nothing of what goes well."""

        protocol_version = "HTTP/1.1"

        def log_request(self, code="-", size="-"):
            pass

    ACCOUNT.read_prices(options.catalogue)
    ec2.patch()
    images.patch()
    app = Door(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", options.port, app, threaded=True, request_handler=Quiet)
    ACCOUNT.endpoint = f"http://127.0.0.1:{server.port}"
    os.environ["MOTO_PORT"] = str(server.port)
    print(f"ready {server.port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main()
